package envscrub

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unicode"
	"unicode/utf8"
)

// windowsInput is the environment of a Windows session as programs there write
// it, with names of the caller that no table knows.
func windowsInput() Input {
	return Input{
		OS: "windows", AccountHome: `C:\Users\u`, Home: `D:\scratch\home`, TmpDir: `D:\scratch\home\tmp`, ScratchHome: true,
		FS: fstest.MapFS{"C:/Users/u/.rustup/x": {}, "C:/Users/u/.npm/x": {}},
		Ambient: []string{
			`=C:=C:\work`, `=::=::\`,
			`Path=C:\Windows\System32;C:\Windows`, `SYSTEMROOT=C:\Windows`, `COMSPEC=C:\Windows\System32\cmd.exe`, `PathExt=.EXE;.CMD`,
			`SYSTEMDRIVE=C:`, `WINDIR=C:\Windows`, `Os=Windows_NT`, `Processor_Architecture=AMD64`, `PSMODULEPATH=C:\Modules`,
			`UserProfile=C:\Users\u`, `Home=C:\Users\u`, `AppData=C:\Users\u\AppData\Roaming`, `LocalAppData=C:\Users\u\AppData\Local`,
			`Temp=C:\Users\u\AppData\Local\Temp`, `Tmp=C:\Users\u\AppData\Local\Temp`, `TmpDir=C:\t`,
			`Term=xterm`, `lang=C`, `ci=1`, `ProgramFiles(x86)=C:\P`, `gh_token=1`, `Ssh_Auth_Sock=x`,
		},
	}
}

// agent_env: on Windows the set of process needs crosses in any casing under
// its canonical one, the profile is redirected into the scratch home, and no
// name is there in two casings.
func TestKranzWindowsTable(t *testing.T) {
	const needs = "OS PATH PATHEXT PROCESSOR_ARCHITECTURE PSModulePath"
	session := "APPDATA ComSpec HOME LANG LOCALAPPDATA NPM_CONFIG_CACHE " + needs + " RUSTUP_HOME SystemDrive SystemRoot TEMP TERM TMP TMPDIR USERPROFILE windir"
	for base, want := range map[Base]string{
		BaseSession:   session,
		BaseContract:  session,
		BaseWorkspace: strings.Replace(session, "RUSTUP_HOME", "RUSTUP_HOME SSH_AUTH_SOCK", 1),
		BaseGate:      "APPDATA CI ComSpec HOME LANG LOCALAPPDATA NPM_CONFIG_CACHE " + needs + " RUSTUP_HOME SystemDrive SystemRoot TEMP TERM TMP TMPDIR USERPROFILE windir",
		BaseProbe:     "APPDATA ComSpec HOME LANG LOCALAPPDATA " + needs + " SystemDrive SystemRoot TEMP TERM TMP TMPDIR USERPROFILE windir",
		BaseShell:     "APPDATA ComSpec HOME LANG LOCALAPPDATA " + needs + " SystemDrive SystemRoot TEMP TERM TMP TMPDIR USERPROFILE windir",
	} {
		in := windowsInput()
		r := build(t, in, Policy{Base: base, Mode: ModeStrict})
		if got := envNames(r); got != want {
			t.Errorf("%s: %s\nwant %s", base, got, want)
		}
		for name, want := range map[string]string{
			"HOME": in.Home, "USERPROFILE": in.Home, "TMPDIR": in.TmpDir, "TMP": in.TmpDir, "TEMP": in.TmpDir,
			"APPDATA": in.Home + `\AppData\Roaming`, "LOCALAPPDATA": in.Home + `\AppData\Local`,
			"SystemRoot": `C:\Windows`, "PATH": `C:\Windows\System32;C:\Windows`,
		} {
			if v, _ := get(r, name); v.Value != want {
				t.Errorf("%s: %s=%s, want %s", base, name, v.Value, want)
			}
		}
		if v, ok := get(r, "RUSTUP_HOME"); ok && v.Value != `C:\Users\u\.rustup` {
			t.Errorf("%s: %s", base, v.Value)
		}
		if dropReason(r, "gh_token") == "" || len(r.Notices) != 0 {
			t.Errorf("%s: %v %v", base, r.Dropped, r.Notices)
		}
	}
	// Elsewhere the same names are ordinary ones.
	in := windowsInput()
	in.OS = "linux"
	if r := build(t, in, Policy{Base: BaseSession, Mode: ModeStrict}); strings.Contains(envNames(r), "SystemRoot") || strings.Contains(envNames(r), "USERPROFILE") {
		t.Errorf("linux: %s", envNames(r))
	}
}

// With the operator's home, only sessions and contracts are redirected; the gate
// and the probe keep HOME and USERPROFILE together.
func TestKranzWindowsRealHome(t *testing.T) {
	in := windowsInput()
	in.Home, in.TmpDir, in.ScratchHome = `C:\Users\u`, `C:\Temp`, false
	for base, redirected := range map[Base]bool{BaseSession: true, BaseContract: true, BaseWorkspace: true, BaseGate: false, BaseProbe: false, BaseShell: false, BaseTerminal: false} {
		r := build(t, in, Policy{Base: base, Mode: ModeStrict})
		if _, ok := get(r, "APPDATA"); ok != redirected {
			t.Errorf("%s: APPDATA is there: %v", base, ok)
		}
		if v, _ := get(r, "USERPROFILE"); v.Value != in.Home {
			t.Errorf("%s: USERPROFILE=%s", base, v.Value)
		}
		if v, _ := get(r, "TEMP"); v.Value != in.TmpDir {
			t.Errorf("%s: TEMP=%s", base, v.Value)
		}
	}
	r := build(t, in, Policy{Base: BaseShell, Mode: ModeDenySecrets})
	if v, _ := get(r, "APPDATA"); v.Value != `C:\Users\u\AppData\Roaming` {
		t.Errorf("shell: APPDATA=%s", v.Value)
	}
	// Without a record the profile stands for it.
	in.AccountHome = ""
	if v, _ := get(build(t, in, Policy{Base: BaseGate, Mode: ModeStrict}), "RUSTUP_HOME"); v.Value != `C:\Users\u\.rustup` {
		t.Errorf("RUSTUP_HOME=%s", v.Value)
	}
}

// One variable stays one, whatever steps and casings ask for it.
func TestWindowsOneCasing(t *testing.T) {
	in := Input{OS: "windows", Ambient: []string{`Path=C:\a`, `PATH=C:\b`, "Foo=1", "FOO=2", "größe=1", "gh_Token=1", "Db=1", "My_Key=k"}, Home: `C:\h`, TmpDir: `C:\t`}
	p := Policy{Base: BaseShell, Mode: ModeStrict, Allow: rules(t, "foo", "GRÖSSE", "GRÖßE"), Pass: names("DB"), Auth: names("MY_KEY")[0]}
	if got := pairs(build(t, in, p)); got != `DB=1 FOO=2 HOME=C:\h MY_KEY=k PATH=C:\b TEMP=C:\t TMP=C:\t TMPDIR=C:\t USERPROFILE=C:\h größe=1` {
		t.Errorf("%s", got)
	}
	p.Set, p.Inject, p.Fixed, p.Flags, p.Extra = assigns("fOO=set", "Home=x", "appdata=x"), assigns("db=inject", "UserProfile=x", "pwd=x"), assigns("PWD=w"), assigns("path=flag"), assigns("my_key=extra", "home=extra", "SYSTEMROOT=extra")
	r := build(t, in, p)
	if got := pairs(r); got != `APPDATA=x HOME=extra MY_KEY=k PATH=flag PWD=w SystemRoot=extra TEMP=C:\t TMP=C:\t TMPDIR=C:\t USERPROFILE=C:\h db=inject fOO=set größe=1` {
		t.Errorf("%s", got)
	}
	for _, name := range []string{"Home", "UserProfile", "pwd"} {
		if !hasNotice(r, "ignoring the value of "+name) {
			t.Errorf("no word about %s: %v", name, r.Notices)
		}
	}
	// Deny and the control plane have no casing either.
	p = Policy{Base: BaseShell, Mode: ModeDenySecrets, Deny: rules(t, "FO*", "*ÖßE"), ControlPrefixes: []string{"DÉ_"}}
	in.Ambient = append(in.Ambient, "dé_x=1", "wAll_x=1")
	if got := envNames(build(t, in, p)); got != "Db HOME PATH TEMP TMP TMPDIR USERPROFILE" {
		t.Errorf("%s", got)
	}
	// Letters beyond ASCII have a casing, too, but none is the casing of an ASCII
	// letter; other bytes have none.
	r = build(t, Input{OS: "windows", Ambient: []string{"ä=1", "Ä=2", "ſ=3", "S=4", "\xffa=5", "\xfea=6", "\xffA=7"}}, Policy{Base: BaseShell, Mode: ModeOff})
	if got := pairs(r); got != "S=4 Ä=2 ſ=3 \xfea=6 \xffA=7" {
		t.Errorf("%q", got)
	}
	// A redirected place cannot be set.
	r = build(t, windowsInput(), Policy{Base: BaseShell, Mode: ModeStrict, Set: assigns("appdata=x", "LocalAppData=x", "temp=x")})
	if len(r.Notices) != 3 || strings.Contains(pairs(r), "=x ") {
		t.Errorf("%s %v", pairs(r), r.Notices)
	}
	// A managed name cannot be passed, in any casing, here as elsewhere.
	for _, os := range []string{"windows", "linux"} {
		in := Input{OS: os, Ambient: []string{"SYSTEMDRIVE=x", "windir=x", "os=x", "Processor_Architecture=x", "psmodulepath=x"}}
		r := build(t, in, Policy{Base: BaseContract, Mode: ModeStrict, Pass: names("SYSTEMDRIVE", "WINDIR", "os", "Processor_Architecture", "psmodulepath")})
		if len(r.Notices) != 5 || !hasNotice(r, "psmodulepath", "wall decides") {
			t.Errorf("%s: %v", os, r.Notices)
		}
	}
}

func TestWindowsPath(t *testing.T) {
	tests := []struct {
		ambient, want string
		removed       bool
	}{
		{`Path=C:\a;d:/b`, `C:\a;d:/b`, false},
		{`Path=C:\a;;C:\b;`, `C:\a;C:\b`, true},
		{`Path=.;C:a;\a;a;C:\b;%SystemRoot%\x`, `C:\b`, true},
		{`Path="C:\a;b";C:\c`, `"C:\a;b";C:\c`, false},
		{`Path=\\server\share;//server/share;\\\x`, `\\server\share;//server/share`, true},
		{`Path=/usr/bin:/bin`, `C:\Windows\System32;C:\Windows;C:\Windows\System32\Wbem`, true},
		{`Path=`, `C:\Windows\System32;C:\Windows;C:\Windows\System32\Wbem`, false},
		{`SystemRoot=E:\Win\`, `E:\Win\System32;E:\Win;E:\Win\System32\Wbem`, false},
		{`SystemRoot=win`, `C:\Windows\System32;C:\Windows;C:\Windows\System32\Wbem`, false},
		{`SystemRoot=E:\x;C:\y`, `C:\Windows\System32;C:\Windows;C:\Windows\System32\Wbem`, false},
	}
	for _, tt := range tests {
		r := build(t, Input{OS: "windows", Ambient: []string{tt.ambient}}, Policy{Base: BaseGate, Mode: ModeStrict})
		if v, _ := get(r, "PATH"); v.Value != tt.want || hasNotice(r, "PATH") != tt.removed {
			t.Errorf("%s: PATH=%s, want %s; notices %v", tt.ambient, v.Value, tt.want, r.Notices)
		}
	}
}

// asciiOrUpper is foldName in one expression, for text that is UTF-8.
func asciiOrUpper(s string) string {
	return strings.Map(func(r rune) rune {
		if u := unicode.ToUpper(r); r < utf8.RuneSelf || u >= utf8.RuneSelf {
			return u
		}
		return r
	}, s)
}

func FuzzFoldName(f *testing.F) {
	for _, s := range []string{"Path", "größe", "ſystemRoot", "ıD", "\xffa\xc3", "ǆ", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		u := foldName(s)
		if utf8.ValidString(s) && u != asciiOrUpper(s) {
			t.Fatalf("%q: %q", s, u)
		}
		if foldName(u) != u && utf8.ValidString(s) && asciiOrUpper(u) == u {
			t.Fatalf("%q: folded twice it is %q, not %q", s, foldName(u), u)
		}
		// A name that is ASCII is the fold of names that are.
		ascii := func(s string) bool { return strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) < 0 }
		if ascii(u) != ascii(s) || len(u) == 0 != (len(s) == 0) {
			t.Fatalf("%q: %q", s, u)
		}
	})
}

// checkWindows builds for Windows and checks what holds for all input.
func checkWindows(t *testing.T, in Input, p Policy) {
	t.Helper()
	in.OS = "windows"
	in.AccountHome = `C:\Users\u`
	in.FS = fstest.MapFS{"C:/Users/u/.rustup/x": {}}
	r, err := Build(in, p)
	checkResult(t, r)
	if s := texts(r, err); strings.Contains(s, sentinel) {
		t.Fatalf("a value is shown:\n%s", s)
	}
	if err != nil {
		return
	}
	// Every variable is there once in Env and Dropped together, in one casing.
	seen := map[string]string{}
	once := func(name string) {
		if other, ok := seen[foldName(name)]; ok {
			t.Fatalf("%q and %q are one variable", other, name)
		}
		seen[foldName(name)] = name
	}
	for _, v := range r.Env {
		once(v.Name)
		for _, s := range slices.Concat(managed[:], spelled[:]) {
			if strings.EqualFold(s, v.Name) && asciiOrUpper(s) == asciiOrUpper(v.Name) && s != v.Name {
				t.Fatalf("%s is spelled %s", s, v.Name)
			}
		}
		if p.Mode != ModeOff && strings.HasPrefix(foldName(v.Name), "WALL_") && !slices.Contains([]string{"set", "injected", "fixed", "flag --env", "extra"}, v.Reason) {
			t.Fatalf("%q of the control plane crosses: %s", v.Name, v.Reason)
		}
	}
	for _, d := range r.Dropped {
		once(d.Name)
	}
	for _, e := range in.Ambient {
		if name, _, ok := strings.Cut(e, "="); ok && name != "" && !strings.Contains(e, "\x00") && seen[foldName(name)] == "" {
			t.Fatalf("%q is neither kept nor dropped", name)
		}
	}
	// The casing of the ambient names decides nothing but the casing.
	swapped := in
	swapped.Ambient = nil
	for _, e := range in.Ambient {
		name, value, ok := strings.Cut(e, "=")
		if !ok {
			swapped.Ambient = append(swapped.Ambient, e)
			continue
		}
		swapped.Ambient = append(swapped.Ambient, swapCase(name)+"="+value)
	}
	fold := func(r Result) map[string][2]string {
		m := map[string][2]string{}
		for _, v := range r.Env {
			m[foldName(v.Name)] = [2]string{v.Value, strings.ToUpper(v.Reason)}
		}
		for _, d := range r.Dropped {
			m[foldName(d.Name)] = [2]string{"dropped", strings.ToUpper(d.Reason)}
		}
		return m
	}
	other, err := Build(swapped, p)
	if err != nil || !reflect.DeepEqual(fold(r), fold(other)) {
		t.Fatalf("other casing, other result:\n%v\n%v %v", fold(r), fold(other), err)
	}
}

func swapCase(s string) string {
	b := []byte(s)
	for i, c := range b {
		switch {
		case 'a' <= c && c <= 'z':
			b[i] = c - 'a' + 'A'
		case 'A' <= c && c <= 'Z':
			b[i] = c - 'A' + 'a'
		}
	}
	return string(b)
}

func FuzzBuildWindows(f *testing.F) {
	f.Add("Path=C:\\a;b\nPATH=.\nsystemroot=C:\\Windows\n=C:=C:\\x\ngh_token=1", "foo,LC_*", "gH_*", "path ComSpec db", "APPDATA=1\nhome=2", uint8(2), uint8(2))
	f.Add("größe=1\nGRÖßE=2\nſystemroot=3\nlisten_fds=1\nmakeflags=w -j4 --jobserver-auth=3,4", "*", "*ße", "größe", "wall_x=1\n\nOs=3", uint8(1), uint8(0))
	f.Add("\xffa=1\n\xffA=2\nuserprofile=C:\\u\nTmp=3\nHome=4", "\xff*", "", "\xffa", "tmp=1\ntemp=2\ntmpdir=3\nuserprofile=4\nLOCALAPPDATA=5", uint8(0), uint8(4))
	f.Fuzz(func(t *testing.T, environ, allow, deny, pass, set string, mode, base uint8) {
		if strings.Contains(environ+allow+deny+pass+set, sentinel) {
			return
		}
		in, p := fuzzArguments(environ, allow, deny, pass, set, mode, base, false)
		in.Home, in.TmpDir, in.ScratchHome = `D:\h`, `D:\t`, mode%2 == 0
		checkWindows(t, in, p)
	})
}
