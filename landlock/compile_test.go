package landlock

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	golandlock "github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"github.com/wallsandbox/wall/plan"
)

// one compiles a single rule and gives its rights.
func one(t *testing.T, abi int, a plan.Access) golandlock.AccessFSSet {
	t.Helper()
	r, err := Compile(plan.Landlock{ABI: abi, Rules: []plan.PathRule{{Path: "/x", Access: a}}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	switch len(r.Rules) {
	case 0:
		return 0
	case 1:
		return r.Rules[0].Access
	}
	t.Fatalf("%d rules", len(r.Rules))
	return 0
}

// The names are spelled out: this table is what the access words mean.
func TestRightsOfEachAccess(t *testing.T) {
	for _, tt := range []struct {
		access plan.Access
		abi    int
		want   string
	}{
		{plan.AccessNone, 11, "∅"},
		{plan.AccessRead, 1, "{execute,read_file,read_dir}"},
		{plan.AccessRead, 11, "{execute,read_file,read_dir}"},
		{plan.AccessWrite, 1, "{execute,write_file,read_file,read_dir,remove_dir,remove_file,make_dir,make_reg,make_sock,make_fifo,make_sym}"},
		{plan.AccessWrite, 2, "{execute,write_file,read_file,read_dir,remove_dir,remove_file,make_dir,make_reg,make_sock,make_fifo,make_sym,refer}"},
		{plan.AccessWrite, 3, "{execute,write_file,read_file,read_dir,remove_dir,remove_file,make_dir,make_reg,make_sock,make_fifo,make_sym,refer,truncate}"},
		{plan.AccessWrite, 8, "{execute,write_file,read_file,read_dir,remove_dir,remove_file,make_dir,make_reg,make_sock,make_fifo,make_sym,refer,truncate}"},
		{plan.AccessWrite, 9, "{execute,write_file,read_file,read_dir,remove_dir,remove_file,make_dir,make_reg,make_sock,make_fifo,make_sym,refer,truncate,resolve_unix}"},
		{plan.AccessDevice, 2, "{write_file,read_file,read_dir}"},
		{plan.AccessDevice, 5, "{write_file,read_file,read_dir,truncate,ioctl_dev}"},
		{plan.AccessInOut, 5, "{write_file,read_file,read_dir,truncate}"},
		{plan.AccessInOut, 11, "{write_file,read_file,read_dir,truncate}"},
		{plan.AccessList, 11, "{read_dir}"},
		{plan.AccessStdin, 11, "{read_file}"},
		{plan.AccessStdout, 2, "{write_file}"},
		{plan.AccessStdout, 11, "{write_file,truncate}"},
	} {
		if got := one(t, tt.abi, tt.access).String(); got != tt.want {
			t.Errorf("%q at ABI %d: %s, want %s", tt.access, tt.abi, got, tt.want)
		}
	}
}

func TestNoAccessMakesDevices(t *testing.T) {
	for _, a := range []plan.Access{plan.AccessRead, plan.AccessWrite, plan.AccessDevice, plan.AccessInOut, plan.AccessList, plan.AccessStdin, plan.AccessStdout} {
		for abi := 1; abi <= NewestABI; abi++ {
			if got := one(t, abi, a); got&(ll.AccessFSMakeChar|ll.AccessFSMakeBlock) != 0 {
				t.Errorf("%q at ABI %d can make device nodes: %v", a, abi, got)
			}
		}
	}
}

func TestCompileHandlesEverythingOfTheABI(t *testing.T) {
	for level := 0; level <= NewestABI+1; level++ {
		r, err := Compile(plan.Landlock{ABI: level}, Options{})
		if err != nil {
			t.Fatalf("ABI %d: %v", level, err)
		}
		want := Ruleset{ABI: min(level, NewestABI), HandledFS: abiRow(level).fs}
		if !reflect.DeepEqual(r, want) {
			t.Errorf("ABI %d: %+v, want %+v", level, r, want)
		}
	}
}

func TestCompileNetwork(t *testing.T) {
	o := plan.Origin{Text: "--publish 80"}
	l := plan.Landlock{Network: true, Ports: []plan.PortRule{
		{Op: plan.PortBindTCP, Port: 80, Origin: o},
		{Op: plan.PortConnectTCP, Port: 65535},
		{Op: plan.PortBindUDP, Port: 0},
		{Op: plan.PortConnectUDP, Port: 53},
	}}
	tcp := []Port{{80, ll.AccessNetBindTCP, o}, {65535, ll.AccessNetConnectTCP, plan.Origin{}}}
	udp := []Port{{0, ll.AccessNetBindUDP, plan.Origin{}}, {53, ll.AccessNetConnectSendUDP, plan.Origin{}}}
	for level := 1; level <= NewestABI; level++ {
		l.ABI = level
		r, err := Compile(l, Options{})
		if level < 4 {
			var u *plan.UnsupportedError
			if !errors.As(err, &u) || !errors.Is(err, errors.ErrUnsupported) || u.Need != "Landlock ABI 4 (Linux 6.7)" {
				t.Errorf("ABI %d: error %v, want unsupported", level, err)
			}
			continue
		}
		want := tcp
		if level >= 10 {
			want = append(append([]Port{}, tcp...), udp...)
		}
		if err != nil || !reflect.DeepEqual(r.Ports, want) || r.HandledNet != abiRow(level).net {
			t.Errorf("ABI %d: %v handled %v, %v; want %v", level, r.Ports, r.HandledNet, err, want)
		}
	}
}

func TestCompileScopes(t *testing.T) {
	for level := 1; level <= NewestABI; level++ {
		for _, tt := range []struct {
			signals, abstract bool
			want              golandlock.ScopedSet
		}{
			{false, false, 0},
			{true, false, ll.ScopeSignal},
			{false, true, ll.ScopeAbstractUnixSocket},
			{true, true, ll.ScopeSignal | ll.ScopeAbstractUnixSocket},
		} {
			r, err := Compile(plan.Landlock{ABI: level, Signals: tt.signals, Abstract: tt.abstract}, Options{})
			if level < 6 && tt.want != 0 {
				if !errors.Is(err, errors.ErrUnsupported) {
					t.Errorf("ABI %d: scopes asked for in vain: error %v", level, err)
				}
				continue
			}
			if err != nil || r.Scoped != tt.want {
				t.Errorf("ABI %d %+v: %v, %v", level, tt, r.Scoped, err)
			}
		}
	}
}

func TestCompileStdio(t *testing.T) {
	stdio := []plan.Stdio{
		{FD: 0, Kind: plan.StdioFile, Read: true},
		{FD: 1, Kind: plan.StdioFile, Write: true},
		{FD: 2, Kind: plan.StdioPipe, Write: true},
	}
	r, err := Compile(plan.Landlock{ABI: 7, Stdio: true}, Options{Stdio: stdio})
	if err != nil {
		t.Fatal(err)
	}
	want := []StdioRule{{0, ll.AccessFSReadFile}, {1, ll.AccessFSWriteFile | ll.AccessFSTruncate}}
	if !reflect.DeepEqual(r.Stdio, want) {
		t.Errorf("%+v, want %+v", r.Stdio, want)
	}
	stdio[2] = plan.Stdio{FD: 2, Kind: plan.StdioFile, Read: true, Write: true}
	r, err = Compile(plan.Landlock{ABI: 2, Stdio: true}, Options{Stdio: stdio})
	if err != nil || r.Stdio[2] != (StdioRule{2, ll.AccessFSReadFile | ll.AccessFSWriteFile}) {
		t.Errorf("ABI 2, read and write: %+v, %v", r.Stdio, err)
	}
	r, err = Compile(plan.Landlock{ABI: 7}, Options{Stdio: stdio})
	if err != nil || r.Stdio != nil {
		t.Errorf("not asked for: %+v, %v", r.Stdio, err)
	}
	// An O_PATH descriptor neither reads nor writes and gets nothing.
	r, err = Compile(plan.Landlock{ABI: 7, Stdio: true}, Options{Stdio: []plan.Stdio{{FD: 0, Kind: plan.StdioFile}}})
	if err != nil || r.Stdio != nil {
		t.Errorf("without access: %+v, %v", r.Stdio, err)
	}
}

func TestCompileMergesRulesOfOnePath(t *testing.T) {
	first, second := plan.Origin{Text: "first"}, plan.Origin{Text: "second"}
	r, err := Compile(plan.Landlock{ABI: 1, Rules: []plan.PathRule{
		{Path: "/x", Access: plan.AccessList, Optional: true, Origin: first},
		{Path: "/y", Access: plan.AccessList},
		{Path: "/x", Access: plan.AccessStdin, Origin: second},
	}}, Options{})
	want := []Rule{
		{"/x", ll.AccessFSReadDir | ll.AccessFSReadFile, false, first},
		{"/y", ll.AccessFSReadDir, false, plan.Origin{}},
	}
	if err != nil || !reflect.DeepEqual(r.Rules, want) {
		t.Errorf("%+v, %v; want %+v", r.Rules, err, want)
	}
}

func TestCompileBoundsTheWhole(t *testing.T) {
	l := plan.Landlock{ABI: 1}
	for i := range MaxRules + 1 {
		l.Rules = append(l.Rules, plan.PathRule{Path: fmt.Sprintf("/d/%d", i), Access: plan.AccessRead})
	}
	if _, err := Compile(l, Options{}); err == nil || !strings.Contains(err.Error(), "more than 8192 Landlock rules are needed at /d") {
		t.Errorf("error %v", err)
	}
	l.Rules = l.Rules[:MaxRules]
	if _, err := Compile(l, Options{}); err != nil {
		t.Errorf("at the bound: %v", err)
	}
}

func TestCompileRefusesWhatNoPlanHolds(t *testing.T) {
	for name, l := range map[string]plan.Landlock{
		"negative ABI":   {ABI: -1},
		"access":         {ABI: 1, Rules: []plan.PathRule{{Path: "/x", Access: "all"}}},
		"relative":       {ABI: 1, Rules: []plan.PathRule{{Path: "x", Access: plan.AccessRead}}},
		"dots":           {ABI: 1, Rules: []plan.PathRule{{Path: "/x/../y", Access: plan.AccessRead}}},
		"exception":      {ABI: 1, Rules: []plan.PathRule{{Path: "/x", Access: plan.AccessRead, Except: []string{"y"}}}},
		"ports":          {ABI: 4, Ports: []plan.PortRule{{Op: plan.PortBindTCP, Port: 1}}},
		"port":           {ABI: 4, Network: true, Ports: []plan.PortRule{{Op: plan.PortBindTCP, Port: 65536}}},
		"negative port":  {ABI: 4, Network: true, Ports: []plan.PortRule{{Op: plan.PortBindTCP, Port: -1}}},
		"port operation": {ABI: 4, Network: true, Ports: []plan.PortRule{{Op: "listen", Port: 1}}},
	} {
		if _, err := Compile(l, Options{}); err == nil || !strings.Contains(err.Error(), "wall bug: ") {
			t.Errorf("%s: error %v", name, err)
		}
	}
	_, err := Compile(plan.Landlock{ABI: 4, Stdio: true}, Options{Stdio: []plan.Stdio{{FD: 3, Kind: plan.StdioFile}}})
	if err == nil {
		t.Error("descriptor 3 passed as a standard stream")
	}
}
