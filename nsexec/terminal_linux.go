package nsexec

import (
	"errors"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/plan"
)

// A terminal connects the caller's terminal with the private one of a box, in
// stage 1: what is typed goes in, what is written comes out, each byte as it is.
//
// The caller's terminal is in one of two states. When it is taken (raw), every
// key goes to the box, whose own terminal makes signals of them, and the command
// is in the foreground there. When it is not, wall neither reads from it nor
// changes it, and the command is in the background of its terminal: the kernel
// stops it when it wants to read, and wall then takes the caller's terminal, or
// stops as well where that is not to be had. So "wall run -- make | less" leaves
// the keys to less, and "wall run -- make &" leaves them to the shell.
type terminal struct {
	in      int // the caller's terminal, to read from
	out     int // the same, to write to; -1 when no descriptor can
	whole   bool
	saved   unix.Termios
	suspend func(syscall.Signal) bool
	wrote   func(int) int // see [Cmd.Wrote]

	raw   atomic.Bool // the terminal is taken; changed with mu held
	ended atomic.Bool // the box has ended
	gone  atomic.Bool // the caller's terminal has been hung up

	mu      sync.Mutex
	master  int  // of the box's terminal, not blocking; -1 before and after
	control int  // to stage 2; -1 after
	orders  byte // sent to it, in the arithmetic of a byte
	wants   bool // to be taken when wall is in the foreground
	hup     func()

	guardian atomic.Pointer[guardian] // nil until the terminal is to be taken, and after

	wakeIn, wakeOut event
	flushes         chan chan struct{}
	drained         chan struct{} // closed when the last output was written
	shown           atomic.Uint64 // bytes of output that the caller's terminal has taken
	running         atomic.Int32  // copiers
	closing         sync.Once
}

// Orders to stage 2, in the life-line between the signals: their numbers end at 64,
// and groupFlag is another bit.
const (
	// The limit of processes is set: the command may be executed.
	orderExecute byte = 0x72
	// The command goes on in the foreground.
	orderForeground byte = 0x70
	// The command goes on in the background.
	orderBackground byte = 0x71
)

// relayChunk is how much is carried at a time, in bytes: what a pty holds.
const relayChunk = 64 << 10

// showChunk is how much is written at a time, so that a slow terminal can be told
// from one that takes nothing: a line of 115200 baud needs less than half a second for it.
const showChunk = 4 << 10

// stuckAfter is how long the caller's terminal may take nothing before somebody who has
// more to do than write stops waiting for it.
const stuckAfter = 2 * time.Second

// testOnlyRelayHook sees what is read from the caller's terminal; only tests set it.
var testOnlyRelayHook func([]byte)

// newTerminal makes ready for the caller's terminal fd. out are the standard
// streams that are the same terminal; whole says that standard output is one.
func newTerminal(fd int, out []int, whole bool) (*terminal, error) {
	saved, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, &plan.Error{Op: "cannot read the state of the terminal", Err: os.NewSyscallError("ioctl TCGETS", err)}
	}
	t := &terminal{
		in: fd, out: -1, whole: whole, saved: *saved, master: -1, control: -1, wants: whole,
		flushes: make(chan chan struct{}, 1), drained: make(chan struct{}),
	}
	for _, fd := range append(out, fd) {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		if err == nil && flags&unix.O_ACCMODE != unix.O_RDONLY {
			t.out = fd
			break
		}
	}
	if t.wakeIn, err = newEvent(); err != nil {
		return nil, err
	}
	if t.wakeOut, err = newEvent(); err != nil {
		t.wakeIn.close()
		return nil, err
	}
	return t, nil
}

// sameTerminal reports whether two descriptors are the same terminal. /dev/tty
// is one by another number, and TIOCGDEV tells which.
func sameTerminal(a, b int) bool {
	device := func(fd int) (uint32, uint64, bool) {
		st, err := fstat(fd)
		if err != nil {
			return 0, 0, false
		}
		dev, err := unix.IoctlGetUint32(fd, unix.TIOCGDEV)
		if err != nil {
			return uint32(st.Rdev), uint64(st.Dev), true
		}
		if uint64(dev) != uint64(st.Rdev) {
			return dev, 0, true // opened as /dev/tty
		}
		return dev, uint64(st.Dev), true
	}
	na, fa, oka := device(a)
	nb, fb, okb := device(b)
	// There may be several devpts file systems, each with its own numbers.
	return oka && okb && na == nb && (fa == fb || fa == 0 || fb == 0)
}

// connect takes the box's terminal from stage 2, makes it like the caller's, and
// tells stage 2 to go on. It fails when that cannot be done; it does nothing when
// stage 2 has given up, which the status pipe tells about.
func (t *terminal) connect(sock, control int) error {
	defer unix.Close(sock)
	failed := func(err error) error { return &plan.Error{Op: "cannot connect the terminal", Err: err} }
	if t.wants && t.foreground() { // stage 2 is busy meanwhile
		if err := t.protect(); err != nil {
			return failed(err)
		}
	}
	_, fds, err := receiveFiles(sock, 0)
	switch {
	case err == io.EOF:
		return nil
	case err != nil:
		return failed(err)
	case len(fds) != 1:
		return failed(errors.New("stage 2 sent no terminal"))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.master, t.control = fds[0], control
	if err := unix.IoctlSetTermios(t.master, unix.TCSETS, &t.saved); err != nil {
		return failed(os.NewSyscallError("ioctl TCSETS", err))
	}
	t.resize()
	t.running.Add(2)
	go t.output()
	go t.input()
	order := orderBackground
	if t.wants && t.foreground() {
		if err := t.take(); err != nil {
			return failed(err)
		}
		order = orderForeground
	}
	// A broken pipe tells us that stage 2 is gone; the status says why.
	if err := writeAll(sock, []byte{order}); err != nil && !errors.Is(err, unix.EPIPE) {
		return failed(err)
	}
	return nil
}

// foreground reports whether the caller's terminal may be read and changed now.
// One that is not the controlling terminal has no foreground for this process,
// and may always be.
func (t *terminal) foreground() bool {
	group, err := unix.IoctlGetInt(t.in, unix.TIOCGPGRP)
	return err != nil || group == unix.Getpgrp()
}

// take puts the caller's terminal into raw mode; mu is held.
//
// Nothing else may write to the terminal when its output is left as it is, so
// that it is processed as before while standard output goes elsewhere: perhaps to
// a pager. A read returns at once, for in the background it would stop wall.
func (t *terminal) take() error {
	if err := t.protect(); err != nil {
		return err
	}
	m := t.rawModes()
	t.tell(guardTaken)
	if err := t.set(&m); err != nil {
		t.tell(guardLeft)
		return err
	}
	t.raw.Store(true)
	t.resize()
	t.wakeIn.set()
	return nil
}

// rawModes are the modes of a terminal that is taken.
func (t *terminal) rawModes() unix.Termios {
	m := t.saved
	m.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	m.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	m.Cflag = m.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	if t.whole {
		m.Oflag &^= unix.OPOST
	}
	m.Cc[unix.VMIN], m.Cc[unix.VTIME] = 0, 0
	return m
}

// protect makes sure that there is a guardian; nobody else calls it at the same time.
func (t *terminal) protect() error {
	if t.guardian.Load() != nil {
		return nil
	}
	g, err := startGuardian(t.in, guardOrder{saved: t.saved, raw: t.rawModes()})
	if err == nil {
		t.guardian.Store(g)
	}
	return err
}

// tell tells the guardian, if there is one.
func (t *terminal) tell(what byte) {
	if g := t.guardian.Load(); g != nil {
		g.tell(what)
	}
}

// lose is for a terminal that somebody else has now: its modes are not ours to restore.
func (t *terminal) lose() {
	t.raw.Store(false)
	t.tell(guardLeft)
}

// leave gives the caller's terminal back as it was. It does not need mu, so that it
// can be called by whoever ends the process.
func (t *terminal) leave() {
	if t.raw.CompareAndSwap(true, false) {
		_ = t.set(&t.saved) // it fails when the terminal is gone
		t.tell(guardLeft)
	}
}

// set changes the terminal, also from the background, where that stops a process
// by SIGTTOU unless the signal is blocked.
func (t *terminal) set(m *unix.Termios) error {
	return withoutTTOU(func() error {
		return os.NewSyscallError("ioctl TCSETS", retry(func() error { return unix.IoctlSetTermios(t.in, unix.TCSETS, m) }))
	})
}

// withoutTTOU calls f on a thread that blocks SIGTTOU.
func withoutTTOU(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var block, old unix.Sigset_t
	block.Val[0] = 1 << (unix.SIGTTOU - 1)
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &block, &old); err != nil {
		return os.NewSyscallError("sigprocmask", err)
	}
	defer unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil)
	return f()
}

// resize gives the box's terminal the size of the caller's; mu is held. The
// kernel tells the foreground there when it differs.
func (t *terminal) resize() {
	if t.master < 0 {
		return
	}
	if size, err := unix.IoctlGetWinsize(t.in, unix.TIOCGWINSZ); err == nil {
		_ = unix.IoctlSetWinsize(t.master, unix.TIOCSWINSZ, size) // nobody is left when it fails
	}
}

// resized is for SIGWINCH.
func (t *terminal) resized() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.resize()
}

// order sends stage 2 one order; mu is held.
func (t *terminal) order(b byte) {
	if t.control >= 0 {
		t.orders++
		_ = writeAll(t.control, []byte{b}) // it fails when the box has ended
	}
}

// stopped is called when the command has stopped by sig: this process stops, too,
// as the caller's shell expects, and the command goes on when it does. Where it
// cannot stop (see Cmd.Suspend) the command goes on at once.
//
// orders are those that stage 2 had had by then. One that it had not has continued the command
// since, or does so in a moment, and this process was brought to the foreground
// or the background meanwhile: the stop is over.
func (t *terminal) stopped(sig syscall.Signal, orders byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if orders != t.orders {
		return
	}
	waits := sig == unix.SIGTTIN || sig == unix.SIGTTOU
	if waits && !t.raw.Load() {
		t.wants = true
		if t.resume() {
			return
		}
	}
	t.flush()
	t.leave()
	suspended := t.suspend != nil && t.suspend(sig)
	switch {
	case t.resume():
	case waits && !suspended:
		// In a background that nobody can bring to the front. The kernel has an
		// error for a process that reads there, and nothing for ours to pass on.
		t.hangup()
		t.order(orderForeground)
	default:
		t.order(orderBackground)
	}
}

// resume takes the terminal and has the command go on in the foreground, where
// that is wanted and possible; mu is held.
func (t *terminal) resume() bool {
	if t.gone.Load() {
		t.order(orderForeground)
		return true
	}
	if !t.wants || !t.foreground() || t.take() != nil {
		return false
	}
	t.order(orderForeground)
	return true
}

// continued is for SIGCONT: somebody else stopped this process meanwhile, and may
// have moved it to the front or to the back.
func (t *terminal) continued() {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.control < 0 || t.gone.Load(): // before the box, or after
	case !t.foreground():
		t.lose()
		t.wakeIn.set()
	case t.raw.Load():
		_ = t.take()
	default:
		t.resume()
	}
}

// hangup tells the box that the caller's terminal is gone, as the kernel would:
// by SIGHUP and SIGCONT, and by the end of the box's terminal, see close.
func (t *terminal) hangup() {
	if t.gone.CompareAndSwap(false, true) {
		t.lose()
		t.wakeIn.set()
		t.wakeOut.set()
		go t.hup() // Start may be in the way
	}
}

// input carries what is typed.
func (t *terminal) input() {
	defer t.release()
	defer t.guard()
	buf := make([]byte, relayChunk)
	for !t.ended.Load() && !t.gone.Load() {
		watch := int16(0) // a hang-up is reported all the same
		if t.raw.Load() {
			watch = unix.POLLIN
		}
		fds := []unix.PollFd{{Fd: int32(t.in), Events: watch}, {Fd: int32(t.wakeIn), Events: unix.POLLIN}}
		if poll(fds, -1) != nil {
			return
		}
		if fds[1].Revents != 0 {
			t.wakeIn.clear()
		}
		if fds[0].Revents&unix.POLLIN != 0 && !t.carry(buf) {
			return
		}
		if fds[0].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0 {
			t.hangup()
		}
	}
}

// carry moves what there is to read into the box. False is the end.
func (t *terminal) carry(buf []byte) bool {
	t.mu.Lock()
	if !t.raw.Load() {
		t.mu.Unlock()
		return true
	}
	if !t.foreground() { // taken away without a signal
		t.lose()
		t.mu.Unlock()
		return true
	}
	var n int
	err := retry(func() (err error) { n, err = unix.Read(t.in, buf); return err })
	t.mu.Unlock()
	switch {
	case err == unix.EAGAIN: // a caller may have O_NONBLOCK set
		return true
	case err != nil:
		t.hangup()
		return false
	}
	if testOnlyRelayHook != nil {
		testOnlyRelayHook(buf[:n])
	}
	return t.typeIn(buf[:n])
}

// typeIn writes to the box's terminal, which takes what its buffer holds until
// somebody inside reads. False means that nobody ever will.
func (t *terminal) typeIn(b []byte) bool {
	for len(b) > 0 {
		n, err := unix.Write(t.master, b)
		switch {
		case err == nil:
			b = b[n:]
			continue
		case err == unix.EINTR:
			continue
		case err != unix.EAGAIN:
			return false
		}
		fds := []unix.PollFd{{Fd: int32(t.master), Events: unix.POLLOUT}, {Fd: int32(t.wakeIn), Events: unix.POLLIN}, {Fd: int32(t.in)}}
		if poll(fds, -1) != nil {
			return false
		}
		if fds[1].Revents != 0 {
			t.wakeIn.clear()
		}
		if fds[2].Revents != 0 {
			t.hangup()
		}
		if t.ended.Load() || t.gone.Load() {
			return false
		}
	}
	return true
}

// output carries what the box writes, until its end.
func (t *terminal) output() {
	defer t.release()
	defer close(t.drained)
	defer t.guard()
	buf := make([]byte, relayChunk)
	var flush chan struct{}
	left := 0 // bytes to carry before a flush counts as done at the latest
	for !t.gone.Load() {
		ended := t.ended.Load()
		n, err := t.fill(buf)
		t.show(buf[:t.wrote(n)])
		left -= n
		if err != nil && err != unix.EAGAIN {
			return // EIO: nobody has the terminal any more, and all was read
		}
		if err == nil && (flush == nil || left > 0) {
			continue
		}
		// Asking by poll makes the kernel process what was written (n_tty_poll);
		// after the end of the box nothing more can come.
		wait := -1
		if ended || flush != nil {
			wait = 0
		}
		fds := []unix.PollFd{{Fd: int32(t.master), Events: unix.POLLIN}, {Fd: int32(t.wakeOut), Events: unix.POLLIN}}
		if poll(fds, wait) != nil {
			return
		}
		if fds[0].Revents&unix.POLLIN == 0 || left <= 0 {
			if flush != nil {
				close(flush)
				flush = nil
			}
			if ended && fds[0].Revents&unix.POLLIN == 0 {
				return
			}
		}
		if fds[1].Revents != 0 {
			t.wakeOut.clear()
		}
		select {
		case flush = <-t.flushes:
			left = 2 * relayChunk
		default:
		}
	}
}

// fill reads until the buffer is full or there is nothing more, EAGAIN.
func (t *terminal) fill(buf []byte) (n int, err error) {
	for n < len(buf) {
		m, err := unix.Read(t.master, buf[n:])
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return n, err
		case m == 0:
			return n, unix.EIO
		}
		n += m
	}
	return n, nil
}

// show writes to the caller's terminal. A terminal that does not take anything
// holds the command up, as it would without a box.
func (t *terminal) show(b []byte) {
	for len(b) > 0 && t.out >= 0 && !t.gone.Load() {
		n, err := unix.Write(t.out, b[:min(len(b), showChunk)])
		switch {
		case err == nil:
			b = b[n:]
			t.shown.Add(uint64(n))
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			if poll([]unix.PollFd{{Fd: int32(t.out), Events: unix.POLLOUT}}, -1) != nil {
				return
			}
		default:
			t.hangup()
		}
	}
}

// flush waits until what the command has written so far is on the caller's
// terminal, as far as that takes it; mu is held.
func (t *terminal) flush() {
	select {
	case <-t.flushes: // of an earlier one, which has given up
	default:
	}
	done := make(chan struct{})
	t.flushes <- done
	t.wakeOut.set()
	t.await(done)
}

// await waits until done is closed or there is no more output, and gives up when the
// caller's terminal takes nothing.
func (t *terminal) await(done <-chan struct{}) { awaitWriter(&t.shown, done, t.drained) }

// awaitWriter waits until a channel is closed, and gives up when the terminal takes
// nothing of what is written to it: taken counts that.
func awaitWriter(taken *atomic.Uint64, a, b <-chan struct{}) {
	for before := taken.Load(); ; {
		select {
		case <-a:
			return
		case <-b:
			return
		case <-time.After(stuckAfter):
		}
		now := taken.Load()
		if now == before {
			return
		}
		before = now
	}
}

// guard gives the terminal back before a panic ends the process.
func (t *terminal) guard() {
	if r := recover(); r != nil {
		t.leave()
		panic(r)
	}
}

// end waits until all output was written, or a channel is closed, and gives the
// caller's terminal back. The box has ended. Without patience it does not wait for a
// terminal that takes nothing.
func (t *terminal) end(abort, canceled <-chan struct{}, patience bool) {
	if t.ended.Swap(true) {
		return
	}
	t.wakeIn.set()
	t.wakeOut.set()
	t.mu.Lock()
	connected := t.master >= 0
	t.mu.Unlock()
	switch {
	case connected && patience:
		select {
		case <-t.drained:
		case <-abort:
		case <-canceled:
		}
	case connected:
		t.await(abort)
	}
	t.mu.Lock()
	t.control = -1
	t.leave()
	t.mu.Unlock()
	if g := t.guardian.Swap(nil); g != nil {
		g.dismiss()
	}
	if !connected {
		t.close()
	}
}

// release is called by each of the two copiers at its end. The box's terminal is
// closed when both have ended, which hangs it up.
func (t *terminal) release() {
	if t.running.Add(-1) == 0 {
		t.close()
	}
}

func (t *terminal) close() {
	t.closing.Do(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.master >= 0 {
			unix.Close(t.master)
			t.master = -1
		}
		t.wakeIn.close()
		t.wakeOut.close()
	})
}

func poll(fds []unix.PollFd, timeout int) error {
	return retry(func() error { _, err := unix.Poll(fds, timeout); return err })
}

// An event wakes a goroutine that polls: an eventfd(2).
type event int

func newEvent() (event, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	return event(fd), os.NewSyscallError("eventfd", err)
}

func (e event) set()   { _, _ = unix.Write(int(e), []byte{1, 0, 0, 0, 0, 0, 0, 0}) } // full is set as well
func (e event) clear() { _, _ = unix.Read(int(e), make([]byte, 8)) }
func (e event) close() { unix.Close(int(e)) }
