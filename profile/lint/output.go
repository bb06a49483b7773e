package lint

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"path"
	"strings"

	"github.com/wallsandbox/wall/plan"
)

// A Report is what was found in one call of "wall profile check".
type Report struct {
	Files    []string // in the order they were checked
	Findings []Finding
	FailOn   Severity
	Version  string // of wall
}

// Summary counts findings.
type Summary struct {
	Errors     int `json:"errors"`
	Warnings   int `json:"warnings"`
	Notes      int `json:"notes"`
	Suppressed int `json:"suppressed"`
}

// Summary counts the findings by severity. One that is suppressed counts as
// nothing else.
func (r Report) Summary() Summary {
	var s Summary
	for _, f := range r.Findings {
		switch {
		case f.Suppressed:
			s.Suppressed++
		case f.Severity == Error:
			s.Errors++
		case f.Severity == Warning:
			s.Warnings++
		default:
			s.Notes++
		}
	}
	return s
}

// Failed reports whether a finding that no comment accepts is at least as bad
// as FailOn.
func (r Report) Failed() bool {
	for _, f := range r.Findings {
		if !f.Suppressed && f.Severity >= r.FailOn {
			return true
		}
	}
	return false
}

// Text writes the report for people: each finding with the line it is about,
// then one line that counts. Suppressed findings are only counted. With colour
// it uses ANSI sequences.
func (r Report) Text(w io.Writer, colour bool) error {
	var b strings.Builder
	paint := func(code, s string) string {
		if !colour {
			return s
		}
		return "\x1b[" + code + "m" + s + "\x1b[0m"
	}
	for _, f := range r.Findings {
		if f.Suppressed {
			continue
		}
		fmt.Fprintf(&b, "%s:%d:%d: %s: %s [%s %s]\n", clean(f.File), f.Line, f.Column,
			paint(map[Severity]string{Error: "31", Warning: "33", Note: "36"}[f.Severity], f.Severity.String()), f.Message, f.Code, f.Name)
		if f.Source != "" {
			fmt.Fprintf(&b, "%6d | %s\n", f.Line, f.Source)
			if at := f.Column - 1 - f.lead; f.exact && at >= 0 {
				fmt.Fprintf(&b, "       | %s%s\n", strings.Repeat(" ", at), paint("31", "^"+strings.Repeat("~", max(f.EndColumn-f.Column-1, 0))))
			}
		}
		fmt.Fprintf(&b, "  why: %s\n  fix: %s\n", f.Why, f.Fix)
	}
	s := r.Summary()
	what := "no findings"
	if n := s.Errors + s.Warnings + s.Notes; n > 0 {
		what = fmt.Sprintf("%s: %s, %s, %s", count(n, "finding", "findings"), count(s.Errors, "error", "errors"), count(s.Warnings, "warning", "warnings"), count(s.Notes, "note", "notes"))
	}
	if s.Suppressed > 0 {
		what += fmt.Sprintf(" (%d suppressed)", s.Suppressed)
	}
	fmt.Fprintf(&b, "%s in %s\n", what, count(len(r.Files), "profile", "profiles"))
	_, err := io.WriteString(w, b.String())
	return err
}

// jsonFinding is a finding in JSON; a field is never left out.
type jsonFinding struct {
	Code       string `json:"code"`
	Name       string `json:"name"`
	Severity   string `json:"severity"`
	File       string `json:"file"`
	Line       int    `json:"line"`
	Column     int    `json:"column"`
	EndColumn  int    `json:"endColumn"`
	Text       string `json:"text"`
	Source     string `json:"source"`
	Message    string `json:"message"`
	Why        string `json:"why"`
	Fix        string `json:"fix"`
	Suppressed bool   `json:"suppressed"`
	Reason     string `json:"reason"`
}

// JSON writes the report as one JSON object.
func (r Report) JSON(w io.Writer) error {
	out := struct {
		Version  int           `json:"version"`
		Files    []string      `json:"files"`
		Findings []jsonFinding `json:"findings"`
		Summary  Summary       `json:"summary"`
		FailOn   string        `json:"failOn"`
		Failed   bool          `json:"failed"`
	}{1, []string{}, []jsonFinding{}, r.Summary(), r.FailOn.String(), r.Failed()}
	for _, f := range r.Files {
		out.Files = append(out.Files, clean(f))
	}
	for _, f := range r.Findings {
		out.Findings = append(out.Findings, jsonFinding{
			f.Code, f.Name, f.Severity.String(), clean(f.File), f.Line, f.Column, f.EndColumn, f.Text, f.Source, f.Message, f.Why, f.Fix, f.Suppressed, f.Reason,
		})
	}
	return encode(w, out)
}

func encode(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// GitHub writes the report as workflow commands, which GitHub Actions turns into
// annotations: https://docs.github.com/actions/reference/workflow-commands-for-github-actions.
// Suppressed findings are left out.
func (r Report) GitHub(w io.Writer) error {
	var b strings.Builder
	for _, f := range r.Findings {
		if f.Suppressed {
			continue
		}
		kind := map[Severity]string{Error: "error", Warning: "warning", Note: "notice"}[f.Severity]
		fmt.Fprintf(&b, "::%s file=%s,line=%d,endLine=%d,col=%d,endColumn=%d,title=%s::%s\n", kind,
			githubProperty(plan.Printable(f.File)), f.Line, f.Line, f.Column, f.EndColumn, githubProperty(f.Code+" "+f.Name),
			githubData(f.Message+"\nwhy: "+f.Why+"\nfix: "+f.Fix))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// githubData escapes the text of a workflow command, as @actions/core does and
// the runner undoes.
func githubData(s string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace(s)
}

// githubProperty escapes a property of a workflow command.
func githubProperty(s string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C").Replace(s)
}

// SARIF 2.1.0, the parts that are written here.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool       sarifTool       `json:"tool"`
		ColumnKind string          `json:"columnKind"`
		Artifacts  []sarifArtifact `json:"artifacts"`
		Results    []sarifResult   `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name    string      `json:"name"`
		Version string      `json:"version,omitempty"`
		Rules   []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID                   string       `json:"id"`
		Name                 string       `json:"name"`
		ShortDescription     sarifMessage `json:"shortDescription"`
		FullDescription      sarifMessage `json:"fullDescription"`
		Help                 sarifMessage `json:"help"`
		DefaultConfiguration sarifLevel   `json:"defaultConfiguration"`
	}
	sarifLevel struct {
		Level string `json:"level"`
	}
	sarifMessage struct {
		Text string `json:"text"`
	}
	sarifArtifact struct {
		Location sarifURI `json:"location"`
	}
	sarifURI struct {
		URI   string `json:"uri"`
		Index *int   `json:"index,omitempty"`
	}
	sarifResult struct {
		RuleID       string             `json:"ruleId"`
		RuleIndex    int                `json:"ruleIndex"`
		Level        string             `json:"level"`
		Message      sarifMessage       `json:"message"`
		Locations    []sarifLocation    `json:"locations"`
		Suppressions []sarifSuppression `json:"suppressions,omitempty"`
	}
	sarifLocation struct {
		Physical sarifPhysical `json:"physicalLocation"`
	}
	sarifPhysical struct {
		Artifact sarifURI    `json:"artifactLocation"`
		Region   sarifRegion `json:"region"`
	}
	sarifRegion struct {
		StartLine   int           `json:"startLine"`
		StartColumn int           `json:"startColumn"`
		EndColumn   int           `json:"endColumn"`
		Snippet     *sarifMessage `json:"snippet,omitempty"`
	}
	sarifSuppression struct {
		Kind          string `json:"kind"`
		Justification string `json:"justification"`
	}
)

const sarifSchema = "https://json.schemastore.org/sarif-2.1.0.json"

// SARIF writes the report in the Static Analysis Results Interchange Format,
// version 2.1.0 (OASIS standard of 2020). Files are named relative to the
// working directory where they were named so.
func (r Report) SARIF(w io.Writer) error {
	driver := sarifDriver{Name: "wall", Version: r.Version, Rules: []sarifRule{}}
	index := make(map[string]int, len(table))
	for i, rule := range table {
		index[rule.Code] = i
		driver.Rules = append(driver.Rules, sarifRule{
			ID: rule.Code, Name: rule.Name, ShortDescription: sarifMessage{rule.Doc}, FullDescription: sarifMessage{rule.Doc + " Why it matters: " + rule.Why + "."},
			Help: sarifMessage{"To fix it, " + rule.Fix + "."}, DefaultConfiguration: sarifLevel{rule.Severity.String()},
		})
	}
	run := sarifRun{Tool: sarifTool{driver}, ColumnKind: "unicodeCodePoints", Artifacts: []sarifArtifact{}, Results: []sarifResult{}}
	files := make(map[string]int)
	for _, f := range r.Files {
		if _, twice := files[f]; !twice {
			files[f] = len(run.Artifacts)
			run.Artifacts = append(run.Artifacts, sarifArtifact{sarifURI{URI: fileURI(f)}})
		}
	}
	for _, f := range r.Findings {
		uri := sarifURI{URI: fileURI(f.File)}
		if i, ok := files[f.File]; ok {
			uri.Index = &i
		}
		res := sarifResult{
			RuleID: f.Code, RuleIndex: index[f.Code], Level: f.Severity.String(), Message: sarifMessage{f.Message + "; " + f.Fix},
			Locations: []sarifLocation{{sarifPhysical{uri, sarifRegion{StartLine: f.Line, StartColumn: f.Column, EndColumn: f.EndColumn}}}},
		}
		if f.Source != "" {
			res.Locations[0].Physical.Region.Snippet = &sarifMessage{f.Source}
		}
		if f.Suppressed {
			res.Suppressions = []sarifSuppression{{"inSource", f.Reason}}
		}
		run.Results = append(run.Results, res)
	}
	return encode(w, sarifLog{sarifSchema, "2.1.0", []sarifRun{run}})
}

// fileURI writes the name of a file as a URI reference.
func fileURI(name string) string {
	if b, ok := strings.CutPrefix(name, "built-in:"); ok {
		return "wall:builtin/" + url.PathEscape(b)
	}
	if path.IsAbs(name) {
		return (&url.URL{Scheme: "file", Path: path.Clean(name)}).String()
	}
	// String puts "./" in front of a first element with a colon.
	return (&url.URL{Path: path.Clean(name)}).String()
}
