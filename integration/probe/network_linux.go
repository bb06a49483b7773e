package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"time"
)

// get fetches a URL with Go's own client and, this program being static, its
// own resolver. The second argument is a file of certificates.
func get(a []string) (string, error) {
	client, err := clientFor(a[1])
	if err != nil {
		return "", err
	}
	res, err := client.Get(a[0])
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return string(body), err
}

func clientFor(cas string) (*http.Client, error) {
	pem, err := os.ReadFile(cas)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: pool}
	return &http.Client{Transport: transport}, nil
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
