package host

import (
	"slices"
	"strings"
	"testing"
)

func TestFindAccount(t *testing.T) {
	const text = `# comment:x:7:7::/c:/bin/c
root:x:0:0:root:/root:/bin/bash
broken:x:7
+nis:x:7:7::/n:/bin/n
short:x:7:7:/h:/bin/sh
alice:x:1000:1000:Alice,,,:/home/alice:/usr/bin/zsh
second:x:1000:1000::/home/second:/bin/sh
rel:x:1001:1001::home/rel:bin/sh
empty:x:1002:1002:::
octal:x:01003:1003::/o:/bin/o
windows:x:1004:1004::/home/w:/bin/sh` + "\r\n"
	for _, tt := range []struct {
		uid  int
		want Account
		ok   bool
	}{
		{0, Account{"root", "/root", "/bin/bash"}, true},
		{7, Account{}, false},
		{1000, Account{"alice", "/home/alice", "/usr/bin/zsh"}, true},
		{1001, Account{"rel", "", ""}, true},
		{1002, Account{"empty", "", ""}, true},
		{1003, Account{}, false},
		{1004, Account{"windows", "/home/w", "/bin/sh"}, true},
		{65534, Account{}, false},
	} {
		got, ok := findAccount(text, tt.uid)
		if got != tt.want || ok != tt.ok {
			t.Errorf("findAccount(%d) = %+v, %v; want %+v, %v", tt.uid, got, ok, tt.want, tt.ok)
		}
	}
	if _, ok := findAccount("", 0); ok {
		t.Error("an account in an empty file")
	}
}

func TestBoundSockets(t *testing.T) {
	const text = `Num       RefCount Protocol Flags    Type St Inode Path
ffff888100a1: 00000002 00000000 00010000 0001 01 20412 /run/dbus/system_bus_socket
ffff888100a2: 00000003 00000000 00000000 0001 03    7 /run/dbus/system_bus_socket
ffff888100a3: 00000002 00000000 00010000 0001 01 20413 @abstract
ffff888100a4: 00000002 00000000 00000000 0002 01 20414
ffff888100a5: 00000002 00000000 00010000 0001 01 20415 relative.sock
ffff888100a6: 00000002 00000000 00010000 0001 01 20416 /tmp/with two  spaces
ffff888100a7: 00000002 00000000 00010000 0001 01 20417 /a (deleted)
0000000000000000: 00000002 00000000 00010000 0005 01 99999999 /home/u/.gnupg/S.gpg-agent
ffff888100a8: 00000002 00000000 00010000 0001 01 20418  /leading space
garbage
`
	want := []string{"/a (deleted)", "/home/u/.gnupg/S.gpg-agent", "/run/dbus/system_bus_socket", "/tmp/with two  spaces"}
	if got := boundSockets(text); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := boundSockets(""); len(got) != 0 {
		t.Errorf("got %q for no text", got)
	}
}

func FuzzBoundSockets(f *testing.F) {
	f.Add("ffff: 2 0 1 1 1 20412 /run/x\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, p := range boundSockets(text) {
			if !strings.HasPrefix(p, "/") || strings.Contains(p, "\n") || !strings.Contains(text, p) {
				t.Errorf("%q from %q", p, text)
			}
		}
	})
}

func FuzzFindAccount(f *testing.F) {
	f.Add("root:x:0:0:root:/root:/bin/bash\n", 0)
	f.Fuzz(func(t *testing.T, text string, uid int) {
		a, ok := findAccount(text, uid)
		if !ok && a != (Account{}) {
			t.Errorf("not found, but %+v", a)
		}
		for _, p := range []string{a.Home, a.Shell} {
			if p != "" && p[0] != '/' {
				t.Errorf("relative path %q", p)
			}
		}
	})
}
