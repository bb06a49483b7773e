package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/wallsandbox/wall/egress"
	"github.com/wallsandbox/wall/envscrub"
	"github.com/wallsandbox/wall/gate"
	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile"
)

// recordVersion is the version of the form of records.
const recordVersion = 1

// maxRecord bounds a record that is read.
const maxRecord = 32 << 20

// hashRounds makes a guess at the value of a variable cost some milliseconds.
const hashRounds = 10_000

// What was recorded.
const (
	recordedGate = "gate"
	recordedRun  = "run" // or a shell
)

// A record is everything that is needed to make the box of a gate or run again. It holds
// no value of a variable but those that stand in the profile's own text.
type record struct {
	Version     int             `json:"version"`
	Kind        string          `json:"kind"`
	Wall        string          `json:"wall"`
	Started     string          `json:"started"`
	Command     []string        `json:"command"` // null: the phases of the profile
	Profile     string          `json:"profile"` // as it was named
	Digest      string          `json:"profile_digest"`
	Layers      []recordLayer   `json:"layers"`
	Trusted     bool            `json:"project_layer_trusted"`
	Flags       []recordFlag    `json:"flags"`
	Workspace   recordWorkspace `json:"workspace"`
	User        recordUser      `json:"user"`
	Host        recordHost      `json:"host"`
	Plans       []recordPlan    `json:"plans"`
	Environment recordEnv       `json:"environment"`
	Tools       []recordTool    `json:"tools"`
	Result      recordResult    `json:"result"`
	Integrity   string          `json:"integrity"`
}

type recordLayer struct {
	Kind   profile.LayerKind `json:"kind"`
	Name   string            `json:"name"`
	File   string            `json:"file"`
	Path   string            `json:"path"`
	SHA256 string            `json:"sha256"`
	Text   string            `json:"text"`
}

type recordFlag struct {
	Name  string `json:"name"`
	Value string `json:"value"` // of env only the name
	Text  string `json:"text"`
}

type recordWorkspace struct {
	Path string    `json:"path"`
	Cwd  string    `json:"cwd"` // below the workspace, or absolute
	Git  *gitState `json:"git"` // null when it is no repository
}

type recordUser struct {
	Name string `json:"name"`
	UID  int    `json:"uid"`
	GID  int    `json:"gid"`
	Home string `json:"home"`
}

type recordHost struct {
	Kernel     string `json:"kernel"`
	Arch       string `json:"arch"`
	Landlock   int    `json:"landlock_abi"`
	Seccomp    bool   `json:"seccomp"`
	Namespaces bool   `json:"namespaces"` // the box was built
}

type recordPlan struct {
	Phase  string   `json:"phase"`
	Digest string   `json:"digest"`
	Lines  []string `json:"lines"` // with $workspace, ~, $scratch and $user in place of what differs between users
}

type recordEnv struct {
	Key   string      `json:"key"` // of the hashes, random
	Names []recordVar `json:"names"`
}

type recordVar struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
	Hash   string `json:"hash"`    // "" = none
	NoHash string `json:"no_hash"` // why
}

type recordTool struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

type recordResult struct {
	Status string `json:"status"` // a gate's verdict, or how a run ended
	Exit   int    `json:"exit"`
	Phase  string `json:"phase"` // that decided, "" without phases

	FailOnDenial bool           `json:"fail_on_denial,omitempty"`
	Denials      []recordDenial `json:"denials,omitempty"`
}

// A recordDenial is what the network wall refused a phase.
type recordDenial struct {
	Phase string `json:"phase"`
	gate.Denial
}

// A recording gathers what a record is made of.
type recording struct {
	kind    string
	flag    string // the file of --record
	host    profile.Host
	options profile.Options
	profile string // that is taken when none is named
	stack   *profile.Stack
	command []string // nil: the phases of the profile
	git     *gitState
	tools   []recordTool
}

// prepare refuses what a record cannot hold, and looks at what the command can change.
// It is to be called before anything runs.
func (x *recording) prepare(plans []phasePlan) error {
	if err := x.unrecordable(); err != nil {
		return err
	}
	x.git, x.tools = readGit(x.stack.Workspace()), []recordTool{}
	for _, p := range plans {
		for _, t := range toolsOf(p.plan) {
			if !slices.ContainsFunc(x.tools, func(o recordTool) bool { return o.Path == t.Path }) {
				x.tools = append(x.tools, t)
			}
		}
	}
	return nil
}

// record makes the record of what has run. boxed says that a box was built, secret is
// the key of --record-key, or empty.
func (x *recording) record(started time.Time, plans []phasePlan, result recordResult, boxed bool, secret []byte) (record, error) {
	h := x.host
	ws := x.stack.Workspace()
	rec := record{
		Version: recordVersion, Kind: x.kind, Wall: wallVersion(), Started: started.UTC().Format("2006-01-02T15:04:05Z"),
		Command: x.command, Profile: x.options.Profile, Digest: x.stack.Digest(), Trusted: x.stack.Trusted(),
		Layers: []recordLayer{}, Flags: []recordFlag{}, Tools: x.tools, Plans: []recordPlan{},
		Workspace: recordWorkspace{Path: ws, Cwd: h.Cwd, Git: x.git},
		User:      recordUser{h.User, h.UID, h.GID, realHome(h)},
		Host:      recordHost{kernelRelease(), runtime.GOARCH, h.LandlockABI, h.SeccompErr == nil, boxed},
		Result:    result,
	}
	if rec.Profile == "" {
		rec.Profile = x.profile
	}
	if rest, ok := strings.CutPrefix(h.Cwd+"/", ws+"/"); ok {
		rec.Workspace.Cwd = path.Clean("./" + rest)
	}
	for _, t := range x.stack.Texts() {
		rec.Layers = append(rec.Layers, recordLayer{t.Kind, t.Name, t.File, t.Path, profile.Digest([]byte(t.Text)), t.Text})
	}
	for _, f := range x.options.Flags {
		v := f.Value
		if f.Name == "env" {
			v, _, _ = strings.Cut(v, "=")
		}
		rec.Flags = append(rec.Flags, recordFlag{f.Name, v, f.Text})
	}
	places := placesOf(ws, rec.User, h)
	for _, p := range plans {
		lines, digest, err := planLines(p.plan, places)
		if err != nil {
			return rec, err
		}
		rec.Plans = append(rec.Plans, recordPlan{p.name, digest, lines})
	}
	var key [32]byte
	if err := randomBytes(key[:]); err != nil {
		return rec, err
	}
	rec.Environment = recordEnv{Key: hex.EncodeToString(key[:]), Names: []recordVar{}}
	if len(plans) > 0 {
		vars, err := hashVars(plans[0].plan, hashKey(key[:], secret), places)
		if err != nil {
			return rec, err
		}
		rec.Environment.Names = vars
	}
	return rec, nil
}

// write makes the record and writes it to file.
func (x *recording) write(file *resultFile, started time.Time, plans []phasePlan, result recordResult, boxed bool, secret []byte) error {
	rec, err := x.record(started, plans, result, boxed, secret)
	if err != nil {
		return err
	}
	data, err := rec.encode(secret)
	if err != nil {
		return err
	}
	return file.write(data)
}

// recordedResult is what a record says of the result of a gate.
func recordedResult(r gate.Result, failOnDenial bool) recordResult {
	out := recordResult{Status: string(r.Status), Exit: r.Exit, FailOnDenial: failOnDenial, Denials: denialsOf(r)}
	for _, ph := range r.Phases {
		if !ph.Skipped {
			out.Phase = ph.Name
		}
	}
	return out
}

// denialsOf gives what was refused to the phases of a gate.
func denialsOf(r gate.Result) []recordDenial {
	var out []recordDenial
	for _, ph := range r.Phases {
		if !ph.Skipped && ph.Status != gate.NotRun {
			out = append(out, denialsIn(ph.Name, ph.Plan, ph.Network)...)
		}
	}
	return out
}

// denialsIn gives what was refused to one command.
func denialsIn(phase string, p plan.Plan, s egress.Summary) []recordDenial {
	var out []recordDenial
	for _, d := range gate.NewDenials(p, s).Items {
		out = append(out, recordDenial{phase, d})
	}
	return out
}

// unrecordable refuses what a record cannot hold.
func (x *recording) unrecordable() error {
	origin := flagOrigin("--record " + quoteOdd(x.flag))
	if len(x.options.KeepFDs) > 0 {
		return &plan.Error{Op: "a record cannot hold the descriptors of --fd", Origin: origin}
	}
	// JSON has no other bytes, and what is not the same is not run again.
	words := append([]string{x.options.Profile}, x.command...)
	for _, f := range x.options.Flags {
		if f.Name != "env" { // only its name is recorded, which has only plain bytes
			words = append(words, f.Value)
		}
	}
	for _, w := range words {
		if !utf8.ValidString(w) {
			return &plan.Error{Op: "a record cannot hold " + quoteOdd(w) + ", which is not UTF-8", Origin: origin}
		}
	}
	for _, c := range append([]profile.Phase{{Command: x.command}}, x.stack.Phases()...) {
		if why := heldBy(c.Command); why != "" {
			return &plan.Error{Op: "cannot record a command " + why, Origin: c.Origin,
				Hint: "a record has the words of the command in it; give the value by a variable: --pass NAME"}
		}
	}
	for _, l := range x.stack.Literals() {
		if why := envscrub.Guarded(l.Name, l.Value); why != "" {
			return &plan.Error{Op: "cannot record a profile that holds the value of " + quoteOdd(l.Name) + ", which " + why, Origin: l.Origin,
				Hint: `a record has the text of the profile in it; name the place of the value instead: { file = "..." }`}
		}
	}
	return nil
}

// heldBy says what of a command is a credential, "" for nothing that looks like one: a
// URL with a password, a private key, or a value that is given to a variable with the
// name of one.
func heldBy(command []string) string {
	for _, word := range command {
		if why := envscrub.Guarded("", word); why != "" && strings.HasPrefix(why, "has ") {
			return "which " + why
		}
		for _, f := range strings.Fields(word) {
			name, value, ok := strings.Cut(strings.Trim(f, `'"`), "=")
			value = strings.Trim(value, `'"`)
			if !ok || value == "" || strings.ContainsAny(value[:1], "$`") {
				continue // no value, or one that the shell finds
			}
			if why := envscrub.Guarded(name, "x"); strings.Contains(why, "credential") {
				return "with a value for " + quoteOdd(name) + ", which " + why
			}
		}
	}
	return ""
}

// hashVars gives the names of the variables of a plan, each with a hash of its
// value where that gives nothing away that is worth a guess.
func hashVars(p plan.Plan, key []byte, at []spot) ([]recordVar, error) {
	vars := make([]recordVar, 0, len(p.Env))
	for _, v := range p.Env {
		x := recordVar{Name: v.Name, Reason: v.Reason}
		switch why := envscrub.Guarded(v.Name, v.Value); {
		case why != "":
			x.NoHash = why
		case !v.Source.IsZero():
			x.NoHash = "its value comes from a source"
		case slices.Contains([]string{"pass", "auth", "injected"}, v.Reason):
			x.NoHash = "it may be a credential: " + v.Reason
		default:
			sum, err := pbkdf2.Key(sha256.New, inPlaces(v.Value, at), append(slices.Clip(key), v.Name...), hashRounds, 16)
			if err != nil {
				return nil, err
			}
			x.Hash = hex.EncodeToString(sum)
		}
		vars = append(vars, x)
	}
	return vars, nil
}

// A spot is a path that differs between users and machines, and what stands for it.
type spot struct{ path, name string }

// placesOf gives the places of a run, the most specific first.
func placesOf(ws string, u recordUser, h profile.Host) []spot {
	at := []spot{{ws, "$workspace"}, {u.Home, "~"}, {h.TempDir + "/wall-" + strconv.Itoa(h.UID), "$scratch"}}
	at = append(at, spot{"/run/user/" + strconv.Itoa(h.UID), "$run"})
	if h.Executable != "" {
		at = append(at, spot{h.Executable, "$wall"})
	}
	at = slices.DeleteFunc(at, func(p spot) bool { return p.path == "" || p.path == "/" })
	slices.SortStableFunc(at, func(a, b spot) int { return len(b.path) - len(a.path) })
	return at
}

// inPlaces replaces the places in a text, where a path can end.
func inPlaces(s string, at []spot) string {
	for _, p := range at {
		var b strings.Builder
		for {
			i := strings.Index(s, p.path)
			if i < 0 {
				break
			}
			end := i + len(p.path)
			b.WriteString(s[:i])
			if end == len(s) || strings.IndexByte("/: \t\n\"'", s[end]) >= 0 {
				b.WriteString(p.name)
			} else {
				b.WriteString(p.path)
			}
			s = s[end:]
		}
		s = b.String() + s
	}
	return s
}

// planLines is the text of a plan in which the same box of two users is the same.
func planLines(p plan.Plan, at []spot) (lines []string, digest string, err error) {
	if digest, err = gate.Digest(p); err != nil {
		return nil, "", err
	}
	c, err := gate.Canonical(p)
	if err != nil {
		return nil, "", err
	}
	var b bytes.Buffer
	if err := c.Print(&b); err != nil {
		return nil, "", err
	}
	for line := range strings.Lines(b.String()) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "identity ") {
			line = "identity $user"
		}
		lines = append(lines, inPlaces(line, at))
	}
	return lines, digest, nil
}

// sum is the digest of the record's content, under the key where there is one.
func (rec record) sum(key []byte) (string, error) {
	rec.Integrity = ""
	data, err := json.Marshal(rec)
	if err != nil {
		return "", err
	}
	if len(key) == 0 {
		sum := sha256.Sum256(data)
		return "sha256:" + hex.EncodeToString(sum[:]), nil
	}
	m := hmac.New(sha256.New, key)
	m.Write(data)
	return "hmac-sha256:" + hex.EncodeToString(m.Sum(nil)), nil
}

// encode is the text of the file.
func (rec record) encode(key []byte) ([]byte, error) {
	// What a plan or a repository says may have bytes that JSON replaces: the integrity is
	// that of what can be read again.
	data, err := json.Marshal(rec)
	if err != nil {
		return nil, err
	}
	rec = record{}
	if err := json.Unmarshal(data, &rec); err != nil {
		return nil, err
	}
	if rec.Integrity, err = rec.sum(key); err != nil {
		return nil, err
	}
	data, err = json.MarshalIndent(rec, "", "  ")
	return append(plan.PrintableJSON(data), '\n'), err
}

var errTampered = errors.New("it was changed after wall wrote it: its content and its integrity do not agree")

// decodeRecord reads a record and refuses one that was changed.
func decodeRecord(data, key []byte) (record, error) {
	var rec record
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return rec, fmt.Errorf("it is no record: %w", err)
	}
	if head.Version != recordVersion {
		return rec, fmt.Errorf("it has version %d, this wall reads %d", head.Version, recordVersion)
	}
	if err := d.Decode(&rec); err != nil {
		return rec, fmt.Errorf("it is no record: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return rec, errors.New("it is no record: there is something behind it")
	}
	if rec.Kind != recordedGate && rec.Kind != recordedRun {
		return rec, fmt.Errorf("it is of the kind %q, this wall knows %q and %q", rec.Kind, recordedGate, recordedRun)
	}
	keyed := strings.HasPrefix(rec.Integrity, "hmac-sha256:")
	switch {
	case keyed && len(key) == 0:
		return rec, errors.New("it was written with a key: give it with --record-key")
	case !keyed && len(key) > 0:
		return rec, errors.New("it was written without a key, and anybody could have changed it")
	}
	want, err := rec.sum(key)
	if err != nil {
		return rec, err
	}
	if subtle.ConstantTimeCompare([]byte(want), []byte(rec.Integrity)) != 1 {
		return rec, errTampered
	}
	for _, l := range rec.Layers {
		if profile.Digest([]byte(l.Text)) != l.SHA256 {
			return rec, errTampered
		}
	}
	return rec, nil
}

// hashKey is the key of the hashes of a record: random, which is in the record, alone,
// or with the secret that only those know who may read the record's hashes.
func hashKey(random, secret []byte) []byte {
	if len(secret) == 0 {
		return random
	}
	m := hmac.New(sha256.New, secret)
	m.Write([]byte("hashes of variables\x00")) // never what integrity is made of
	m.Write(random)
	return m.Sum(nil)
}

// hexKey reads the key of the hashes.
func hexKey(s string) ([]byte, error) {
	key, err := hex.DecodeString(s)
	if err != nil || len(key) != 32 {
		return nil, &plan.Error{Op: "the record has no key for its hashes"}
	}
	return key, nil
}
