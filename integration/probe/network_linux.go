package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

// patience is what an operation waits for an answer before it says ETIMEDOUT.
const patience = 20 * time.Second

// get fetches a URL with Go's own client and, this program being static, its
// own resolver. The second argument is a file of certificates.
func get(a []string) (string, error) {
	pool, err := certificates(a[1])
	if err != nil {
		return "", err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: pool}
	res, err := (&http.Client{Transport: transport}).Get(a[0])
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return strings.TrimSpace(string(body)), err
}

func certificates(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	return pool, nil
}

// timedOut gives errors of Go's deadlines the name that the kernel has for them.
func timedOut(err error) error {
	var e net.Error
	if errors.As(err, &e) && e.Timeout() {
		return unix.ETIMEDOUT
	}
	return err
}

const request = "GET / HTTP/1.0\r\nHost: probe\r\n\r\n"

// ask connects, asks for a page and gives the last line of the answer.
func ask(c net.Conn, err error) (string, error) {
	if err != nil {
		return "", timedOut(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, request); err != nil {
		return "", timedOut(err)
	}
	answer, err := io.ReadAll(c)
	if err != nil {
		return "", timedOut(err)
	}
	lines := strings.Split(strings.TrimSpace(string(answer)), "\n")
	return lines[len(lines)-1], nil
}

// reach asks the web server of a host, by name: NAME PORT [tcp4|tcp6].
func reach(a []string) (string, error) {
	d := net.Dialer{Timeout: patience}
	network := "tcp"
	if len(a) > 2 {
		network = a[2]
	}
	return ask(d.Dial(network, net.JoinHostPort(a[0], a[1])))
}

// talk asks the web server at an address, with nothing of the net package in
// between: ADDRESS PORT [DEVICE].
func talk(a []string) (string, error) {
	family, sa := sockaddr(a[0], a[1])
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	wait := unix.NsecToTimeval(int64(patience))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &wait); err != nil {
		return "", err
	}
	if len(a) > 2 {
		if err := unix.BindToDevice(fd, a[2]); err != nil {
			return "", err
		}
	}
	if err := unix.Connect(fd, sa); err != nil {
		return "", err
	}
	return ask(net.FileConn(f))
}

// say connects to an address, sends bytes, given in hexadecimal, and shows what
// comes back until the end: ADDRESS PORT HEX.
func say(a []string) (string, error) {
	data, err := hex.DecodeString(a[2])
	if err != nil {
		return "", err
	}
	c, err := net.DialTimeout("tcp", net.JoinHostPort(a[0], a[1]), patience)
	if err != nil {
		return "", timedOut(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write(data); err != nil {
		return "", err
	}
	_ = c.(*net.TCPConn).CloseWrite()
	answer, err := io.ReadAll(c)
	if len(answer) > 0 || err == nil {
		return strconv.Quote(string(answer)), nil
	}
	return "", timedOut(err)
}

// sendUDP sends a datagram from a socket that is not connected: ADDRESS PORT.
func sendUDP(a []string) (string, error) {
	family, sa := sockaddr(a[0], a[1])
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1)
	return "", unix.Sendto(fd, []byte("wall?"), 0, sa)
}

// askDNS asks a name server: NETWORK ADDRESS TYPE NAME [CLASS]. It tells the
// code of the response and, sorted, the data, "NXDOMAIN" or "NOERROR 1.2.3.4/5"
// with the time to live.
func askDNS(a []string) (string, error) {
	kinds := map[string]dnsmessage.Type{"A": dnsmessage.TypeA, "AAAA": dnsmessage.TypeAAAA, "TXT": dnsmessage.TypeTXT, "MX": dnsmessage.TypeMX, "NS": dnsmessage.TypeNS,
		"SRV": dnsmessage.TypeSRV, "PTR": dnsmessage.TypePTR, "ANY": 255, "HTTPS": 65, "SVCB": 64, "NULL": 10, "AXFR": 252, "CNAME": dnsmessage.TypeCNAME}
	name, err := dnsmessage.NewName(a[3])
	if err != nil {
		return "", err
	}
	class := dnsmessage.ClassINET
	if len(a) > 4 {
		class = dnsmessage.Class(number(a[4]))
	}
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: 77, RecursionDesired: true}, Questions: []dnsmessage.Question{{Name: name, Type: kinds[a[2]], Class: class}}}
	query, err := m.Pack()
	if err != nil {
		return "", err
	}
	c, err := net.DialTimeout(a[0], net.JoinHostPort(a[1], "53"), patience)
	if err != nil {
		return "", timedOut(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	stream := strings.HasPrefix(a[0], "tcp")
	if stream {
		query = append(binary.BigEndian.AppendUint16(nil, uint16(len(query))), query...)
	}
	if _, err := c.Write(query); err != nil {
		return "", err
	}
	buf := make([]byte, 1<<16)
	n := 0
	if stream {
		if _, err = io.ReadFull(c, buf[:2]); err == nil {
			n, err = io.ReadFull(c, buf[:binary.BigEndian.Uint16(buf)])
		}
	} else {
		n, err = c.Read(buf)
	}
	if err != nil {
		return "", timedOut(err)
	}
	var r dnsmessage.Message
	if err := r.Unpack(buf[:n]); err != nil {
		return "", err
	}
	if r.ID != 77 || !r.Response || len(r.Questions) != 1 || r.Questions[0] != m.Questions[0] {
		return "", fmt.Errorf("an answer to another question: %v", r)
	}
	var data []string
	for _, x := range slices.Concat(r.Answers, r.Authorities, r.Additionals) {
		s := fmt.Sprint(x.Body)
		switch b := x.Body.(type) {
		case *dnsmessage.AResource:
			s = net.IP(b.A[:]).String()
		case *dnsmessage.AAAAResource:
			s = net.IP(b.AAAA[:]).String()
		case *dnsmessage.PTRResource:
			s = b.PTR.String()
		case *dnsmessage.OPTResource, *dnsmessage.SOAResource:
			continue
		}
		data = append(data, fmt.Sprintf("%s/%d", s, x.Header.TTL))
	}
	slices.Sort(data)
	codes := map[dnsmessage.RCode]string{0: "NOERROR", 1: "FORMERR", 2: "SERVFAIL", 3: "NXDOMAIN", 4: "NOTIMP", 5: "REFUSED"}
	return strings.Join(append([]string{codes[r.RCode]}, data...), " "), nil
}

// talkTLS says hello with a server name, and gives the first line of what the
// web server says: ADDRESS NAME FILE.
func talkTLS(a []string) (string, error) {
	pool, err := certificates(a[2])
	if err != nil {
		return "", err
	}
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: patience}, Config: &tls.Config{RootCAs: pool, ServerName: a[1], NextProtos: []string{"http/1.1"}}}
	if a[1] == "-" { // no name at all
		d.Config.ServerName, d.Config.InsecureSkipVerify = "", true
		if host, _, _ := net.SplitHostPort(a[0]); net.ParseIP(host) == nil {
			d.Config.ServerName = "127.0.0.1" // an address is not sent
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return ask(d.DialContext(ctx, "tcp", a[0]))
}

// halves sends bytes, ends its half of the connection, and gives what the other
// side says then: NAME PORT BYTES.
func halves(a []string) (string, error) {
	c, err := net.DialTimeout("tcp", net.JoinHostPort(a[0], a[1]), patience)
	if err != nil {
		return "", timedOut(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write(make([]byte, number(a[2]))); err != nil {
		return "", err
	}
	if len(a) > 3 { // reset
		if err := c.(*net.TCPConn).SetLinger(0); err != nil {
			return "", err
		}
		return "", c.Close()
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(c)
	return strings.TrimSpace(string(answer)), timedOut(err)
}

// flood opens connections and keeps all of them until the last one is there:
// NAME PORT COUNT. It gives how many answer, and how many do not.
func flood(a []string) (string, error) {
	conns := make([]net.Conn, number(a[2]))
	var wg sync.WaitGroup
	for i := range conns {
		wg.Go(func() {
			c, err := net.DialTimeout("tcp", net.JoinHostPort(a[0], a[1]), patience)
			if err != nil {
				return
			}
			_ = c.SetDeadline(time.Now().Add(patience))
			if _, err := c.Write([]byte("x")); err == nil {
				if _, err := c.Read(make([]byte, 1)); err == nil {
					conns[i] = c
					return
				}
			}
			c.Close()
		})
	}
	wg.Wait()
	there := 0
	for _, c := range conns {
		if c != nil {
			there++
			defer c.Close()
		}
	}
	return fmt.Sprintf("%d %d", there, len(conns)-there), nil
}

// short makes one connection after the other, each for one byte: NAME PORT
// COUNT. It connects to the address that the name has at first.
func short(a []string) (string, error) {
	addrs, err := net.LookupHost(a[0])
	if err != nil {
		return "", err
	}
	bad := 0
	begin := time.Now()
	var last error
	for range number(a[2]) {
		err := func() error {
			c, err := net.DialTimeout("tcp", net.JoinHostPort(addrs[0], a[1]), patience)
			if err != nil {
				return err
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(patience))
			if _, err := c.Write([]byte("x")); err != nil {
				return err
			}
			if _, err := c.Read(make([]byte, 1)); err != nil {
				return err
			}
			return c.(*net.TCPConn).SetLinger(0) // keeps the port free
		}()
		if err != nil {
			bad, last = bad+1, err
		}
	}
	if last != nil {
		return "", fmt.Errorf("%d failed, the last one: %w", bad, last)
	}
	return strconv.FormatInt(time.Since(begin).Microseconds(), 10), nil
}

// names connects to as many names below one, nN.NAME, and tells how many answer:
// NAME PORT COUNT.
func names(a []string) (string, error) {
	there := 0
	var last error
	for i := range number(a[2]) {
		c, err := net.DialTimeout("tcp", net.JoinHostPort(fmt.Sprintf("n%d.%s", i, a[0]), a[1]), patience)
		if err != nil {
			last = err
			continue
		}
		_ = c.SetDeadline(time.Now().Add(patience))
		_, _ = c.Write([]byte("x"))
		if _, err := c.Read(make([]byte, 1)); err == nil {
			there++
		}
		c.Close()
	}
	if there == 0 {
		return "", last
	}
	return strconv.Itoa(there), nil
}

// loris opens connections, sends a byte of a head now and then, and tells how
// long they last, in milliseconds: ADDRESS PORT COUNT.
func loris(a []string) (string, error) {
	var longest time.Duration
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range number(a[2]) {
		wg.Go(func() {
			begin := time.Now()
			c, err := net.DialTimeout("tcp", net.JoinHostPort(a[0], a[1]), patience)
			if err != nil {
				return
			}
			defer c.Close()
			for time.Since(begin) < time.Minute {
				if _, err = c.Write([]byte("G")); err != nil {
					break
				}
				_ = c.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
				if _, err = c.Read(make([]byte, 1)); timedOut(err) != unix.ETIMEDOUT {
					break
				}
			}
			mu.Lock()
			defer mu.Unlock()
			longest = max(longest, time.Since(begin))
		})
	}
	wg.Wait()
	return strconv.FormatInt(longest.Milliseconds(), 10), nil
}

// bulk reads that many bytes from a server that sends as many as it is told, and
// tells the microseconds that took: HOST PORT BYTES.
func bulk(a []string) (string, error) {
	c, err := net.DialTimeout("tcp", net.JoinHostPort(a[0], a[1]), patience)
	if err != nil {
		return "", timedOut(err)
	}
	defer c.Close()
	begin := time.Now()
	if _, err := fmt.Fprintf(c, "%s\n", a[2]); err != nil {
		return "", err
	}
	n := 0
	buf := make([]byte, 256<<10)
	for {
		m, err := c.Read(buf)
		n += m
		if err == io.EOF {
			break
		}
		if err != nil {
			return "", err
		}
	}
	if n != number(a[2]) {
		return "", fmt.Errorf("%d bytes came", n)
	}
	return strconv.FormatInt(time.Since(begin).Microseconds(), 10), nil
}

// An ended is how a command of many ended.
type ended struct {
	Code   int // -1: ended by a signal, or not started
	Out    string
	Millis int64
}

// many reads [][]string, commands, from standard input, runs them, a few at a
// time, and prints a list of what ended. None gets longer than a minute.
func many() {
	var argvs [][]string
	if err := json.NewDecoder(os.Stdin).Decode(&argvs); err != nil {
		fatal("%v", err)
	}
	results := make([]ended, len(argvs))
	var wg sync.WaitGroup
	slots := make(chan bool, 3)
	for i, argv := range argvs {
		wg.Go(func() {
			slots <- true
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			begin := time.Now()
			cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
			cmd.WaitDelay = time.Second
			out, err := cmd.CombinedOutput()
			results[i] = ended{cmd.ProcessState.ExitCode(), string(out), time.Since(begin).Milliseconds()}
			if cmd.ProcessState == nil {
				results[i].Out = fmt.Sprint(err)
			}
		})
	}
	wg.Wait()
	if err := json.NewEncoder(os.Stdout).Encode(results); err != nil {
		fatal("%v", err)
	}
}
