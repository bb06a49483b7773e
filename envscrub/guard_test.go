package envscrub

import (
	"strings"
	"testing"
)

func TestShapes(t *testing.T) {
	if n := len(SecretShapes()); n != 24 {
		t.Errorf("%d shapes, the reference has 24", n)
	}
	var names []string
	for _, p := range SeedShapes() {
		names = append(names, p.String())
	}
	if got := strings.Join(names, " "); got != "CONTENOX_* *_TOKEN *_KEY *_SECRET *_PASSWORD *_PASSWD *_CREDENTIALS" {
		t.Errorf("seed shapes: %s", got)
	}
	// Tables are matched against names in upper case.
	for _, p := range append(SecretShapes(), SecretGaps()...) {
		if p.String() != strings.ToUpper(p.String()) {
			t.Errorf("%s is not in upper case and never matches", p)
		}
	}
	// Each shape is guarded in the plural, too.
	for _, p := range SecretShapes() {
		name := strings.TrimSuffix(strings.ReplaceAll(p.String(), "*", "X"), "S") + "S"
		for _, n := range []string{name, strings.ToLower(name)} {
			if g, _ := guardOf(n, "x"); g == guardNone {
				t.Errorf("%s is not guarded", n)
			}
		}
	}
	// Callers own what they get.
	SecretShapes()[0] = Pattern{}
	SecretGaps()[0] = Pattern{}
	SeedShapes()[0] = Pattern{}
	if secretShapes[0].text != "CONTENOX_*" || secretGaps[0].text != "*TOKEN" {
		t.Error("a caller changed the tables")
	}
}

func TestGuardOf(t *testing.T) {
	tests := []struct {
		want  guard
		names string
	}{
		{guardShape, "CONTENOX_X GH_TOKEN gh_token API_KEY X_SECRET X_PASSWORD X_PASSWD X_CREDENTIALS X_API_KEY_ID " +
			"AWS_ACCESS_KEY_ID AWS_SESSION_TOKEN AWS_SECRET_ACCESS_KEY PGPASSWORD pgpassword PGPASSFILE MYSQL_PWD X_PWD DATABASE_URL " +
			"X_DATABASE_URL REDIS_URL MONGODB_URI SENTRY_DSN KUBECONFIG X_AUTH GH_PAT NETRC GOOGLE_APPLICATION_CREDENTIALS"},
		{guardGap, "TOKEN token TOKENS GITHUBTOKEN FOO_TOKENS PASSWORD PASSWORDS Password SECRET SECRETS X_SECRETS DBPASSWORD " +
			"X_KEYS X_PASSWORDS X_PASSWDS X_CREDENTIAL CREDENTIALS PASSWD PASSPHRASE X_PASSPHRASE APIKEY OPENAIAPIKEY KEY KEYS AUTH PAT DSN PASS " +
			"SSHPASS X_PASS SECRET_KEY_BASE MONGO_URL X_REDIS_URL SLACK_WEBHOOK_URL BW_SESSION OP_SESSION_x CREDENTIALS_DIRECTORY " +
			"npm_config_//registry.npmjs.org/:_authToken"},
		{guardLoader, "LD_PRELOAD LD_LIBRARY_PATH ld_preload DYLD_INSERT_LIBRARIES BASH_ENV ENV NODE_OPTIONS PYTHONSTARTUP GIT_SSH GIT_SSH_COMMAND " +
			"GIT_EXTERNAL_DIFF GIT_CONFIG GIT_CONFIG_COUNT GIT_CONFIG_GLOBAL GIT_CONFIG_VALUE_0 PERL5OPT RUBYOPT JAVA_TOOL_OPTIONS " +
			"_JAVA_OPTIONS JDK_JAVA_OPTIONS BASH_FUNC_ls%% GCONV_PATH LUA_INIT_5_4 PROMPT_COMMAND ZDOTDIR"},
		{guardSocket, "SSH_AUTH_SOCK XDG_RUNTIME_DIR DBUS_SESSION_BUS_ADDRESS DISPLAY WAYLAND_DISPLAY TMUX VSCODE_IPC_HOOK_CLI NOTIFY_SOCKET"},
		{guardNone, "PATH HOME PWD OLDPWD TERM EDITOR GOFLAGS GOCACHE CARGO_HOME HTTP_PROXY PYTHONPATH LC_ALL KEYBOARD TOKENIZER " +
			"PASSAGE SECRETARY MONKEY AUTHOR COMPASS GIT_AUTHOR_NAME GIT_DIR XDG_CONFIG_HOME LDFLAGS ENVIRONMENT DISPLAYS"},
	}
	for _, tt := range tests {
		for name := range strings.FieldsSeq(tt.names) {
			if got, _ := guardOf(name, "x"); got != tt.want {
				t.Errorf("guardOf(%s) = %d (%s), want %d", name, got, got.text(), tt.want)
			}
		}
	}
	for _, tt := range []struct {
		value string
		want  guard
	}{
		{"unix:///run/docker.sock", guardSocket},
		{"unix:path=/run/bus", guardSocket},
		{"tcp://docker:2375", guardNone},
		{"-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl", guardKey},
		{"-----BEGIN RSA PRIVATE KEY-----", guardKey},
		{"-----BEGIN PUBLIC KEY-----", guardNone},
		{"https://u:p@h", guardURL},
	} {
		if got, _ := guardOf("HARMLESS", tt.value); got != tt.want {
			t.Errorf("guardOf value %q = %d, want %d", tt.value, got, tt.want)
		}
	}
}

func TestHasCredentialURL(t *testing.T) {
	for _, v := range []string{
		"http://user:secret@proxy:3128",
		"HTTP://user:secret@proxy",
		"postgres://u:p@localhost/app?sslmode=disable",
		"redis://:pw@cache:6379/0",
		"amqp://u:p%40x@mq/vhost",
		"postgres://u:p/w@host/db", // raw slash, accepted by drivers
		"postgres://u:p#w?@host/db",
		"postgres://u:1234@host/db", // a password of digits
		"https://ghp_abc@github.com/o/r",
		"git+https://ghp_abc@github.com/o/r",
		"see https://a.example and https://u:p@b.example",
		`{"url":"https://u:p@h/"}`,
		"-Dhttp.proxy=http://u:p@h -Dx=y",
		"jdbc:postgresql://u:p@h/db",
		"user:password@tcp(db:3306)/app", // Go MySQL driver
		"user:password@/app",
		"user:pass@proxy:3128", // curl takes it without a scheme
		"x user:pass@[::1]:80",
	} {
		if !hasCredentialURL(v) {
			t.Errorf("%q is not seen", v)
		}
	}
	for _, v := range []string{
		"", "@", ":@", "://@", "://:@", "a:@h", ":p@h",
		"http://proxy:3128", "http://proxy:3128/", "https://h/path@v1", "http://h:3000/@scope/pkg",
		"http://h:80?x=a@b", "http://[::1]:80/@x", "http://[fe80::1@x",
		"ssh://git@github.com/o/r", "git@github.com:o/r", "user@host", "mailto:a@b.c",
		"http://@host", "postgres://user@host/db",
		"/usr/bin:/opt/openssl@3/bin", "img:tag@sha256:abcd", "npm:left-pad@1.3.0",
		`\u@\h:\w\$ `, "12:30 me@host", "a:b/c@d",
	} {
		if hasCredentialURL(v) {
			t.Errorf("%q is taken for a credential", v)
		}
	}
}

func FuzzHasCredentialURL(f *testing.F) {
	f.Add("http://", "user", "pass", "host/")
	f.Add("x=", "u", "p", "[::1]")
	f.Fuzz(func(t *testing.T, before, user, pass, after string) {
		hasCredentialURL(before + user + pass + after) // must not panic or hang on anything
		word := func(s string) bool {
			for i := 0; i < len(s); i++ {
				if c := upper(s[i]); (c < 'A' || c > 'Z') && (c < '0' || c > '9') {
					return false
				}
			}
			return s != ""
		}
		if !word(user) || !word(pass) {
			return
		}
		if v := before + "://" + user + ":" + pass + "@" + after; !hasCredentialURL(v) {
			t.Fatalf("%q is not seen", v)
		}
	})
}
