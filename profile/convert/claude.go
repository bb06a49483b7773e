package convert

import (
	"slices"
	"strings"
)

// claude converts a settings.json of Claude Code: its sandbox for commands, and
// the permission rules that the sandbox takes over. The workspace is writable
// there and everything readable.
func claude(d *draft, root *node) {
	d.workspace = "read-write"
	if box := d.table(root, "sandbox"); box != nil {
		d.runtime(box)
		if f, on := d.boolean(box, "enabled"); f != nil && !on {
			d.note(Different, f, "the sandbox is off there; the walls of the profile are up")
		}
		if f, on := d.boolean(box, "failIfUnavailable"); f != nil && !on {
			d.note(Different, f, "wall refuses to run without a wall that the profile asks for; if-unavailable = \"degrade\" runs with what is left")
		}
		if f := box.get("excludedCommands"); f != nil {
			f.seeAll()
			d.note(NoEquivalent, f, "no command runs outside of the box")
		}
		if f, on := d.boolean(box, "allowUnsandboxedCommands"); on {
			d.note(NoEquivalent, f, "no command runs outside of the box")
		}
		d.none(box, "enableWeakerNestedSandbox", "wall builds the whole box or, with if-unavailable = \"degrade\", says what is missing")
		for _, name := range []string{"bwrapPath", "socatPath", "seccomp"} {
			d.none(box, name, "wall starts no other program")
		}
		d.unrelated(box, "autoAllowBashIfSandboxed", "ignoreViolations", "ripgrep", "enableWeakerNetworkIsolation", "allowAppleEvents", "enabledPlatforms")
		if net := box.get("network"); net != nil {
			d.unrelated(net, "allowManagedDomainsOnly")
		}
		if fs := box.get("filesystem"); fs != nil {
			d.unrelated(fs, "allowManagedReadPathsOnly")
		}
	}
	if p := d.table(root, "permissions"); p != nil {
		for _, n := range d.strings(p, "additionalDirectories") {
			d.path(n, native(n.text), forWrite)
		}
		for _, n := range d.strings(p, "deny") {
			d.rule(n, true)
		}
		for _, n := range d.strings(p, "allow") {
			d.rule(n, false)
		}
		if f := p.get("ask"); f != nil {
			f.seeAll()
			d.note(NoEquivalent, f, "a box does not ask; what is not allowed is refused")
		}
		d.unrelated(p, "defaultMode", "disableBypassPermissionsMode", "disableAutoMode",
			"blockWritesOutsideWorkingDirectories", "blockReadsOutsideWorkingDirectories", "denyInsteadOfPrompting")
		if len(d.allow) > 0 && d.network != "allow" {
			d.finishNetwork(p)
		}
	}
	d.denyWins()
	if env := d.table(root, "env"); env != nil {
		d.variables(env)
	}
	d.unrelated(root, "$schema", "model", "availableModels", "hooks", "disableAllHooks", "statusLine", "outputStyle", "includeCoAuthoredBy", "attribution",
		"cleanupPeriodDays", "companyAnnouncements", "enabledPlugins", "extraKnownMarketplaces", "strictKnownMarketplaces", "alwaysThinkingEnabled",
		"apiKeyHelper", "awsAuthRefresh", "awsCredentialExport", "otelHeadersHelper", "forceLoginMethod", "forceLoginOrgUUID",
		"enableAllProjectMcpServers", "enabledMcpjsonServers", "disabledMcpjsonServers", "allowedMcpServers", "deniedMcpServers",
		"spinnerTipsEnabled", "theme", "language", "autoUpdatesChannel", "plansDirectory", "fileSuggestion", "respectGitignore",
		"showTurnDuration", "terminalProgressBarEnabled", "skipDangerousModePermissionPrompt", "effortLevel", "fastMode", "teammateMode")
}

// rule converts one permission rule: "Tool" or "Tool(what)".
func (d *draft) rule(n *node, deny bool) {
	tool, what, ok := strings.Cut(n.text, "(")
	what, closed := strings.CutSuffix(what, ")")
	if ok && !closed {
		k := NotUnderstood
		if deny {
			k = Lost
		}
		d.note(k, n, "%s is not a rule", quote(n.text))
		return
	}
	switch tool {
	case "Read", "Edit", "Write", "MultiEdit", "NotebookEdit", "Glob", "Grep", "LS":
		reads := tool == "Read" || tool == "Glob" || tool == "Grep" || tool == "LS"
		if !ok || what == "" || what == "*" || what == "**" {
			switch {
			case deny && reads:
				d.note(NoEquivalent, n, "a box without its workspace is none; use view = \"system\" to show little else")
			case deny:
				d.readOnly = true
			case !reads:
				d.note(NoEquivalent, n, "not everything is made writable; the workspace is")
			}
			return
		}
		p, rooted := rulePath(what, deny && reads)
		if rooted {
			d.note(Different, n, "%s is taken as relative to the workspace, as in the settings of a project", quote(what))
		}
		switch {
		case deny && reads:
			before := len(d.hide)
			d.path(n, p, forHide)
			if p = clean(p); len(d.hide) > before || slices.Contains(d.hide, p) {
				d.hard = append(d.hard, p)
			}
		case deny:
			d.path(n, p, forProtect)
		case reads:
			d.path(n, p, forRead)
		default:
			d.path(n, p, forWrite)
		}
	case "WebFetch":
		host, isDomain := strings.CutPrefix(what, "domain:")
		switch {
		case isDomain && deny:
			d.host(n, &d.deny, "deny", host)
		case isDomain:
			d.host(n, &d.allow, "allow", host)
		case deny:
			d.note(Different, n, "hosts that are not allowed are refused anyway")
		default:
			d.note(NoEquivalent, n, "not every host is allowed: list them in network.allow")
		}
	case "Bash", "PowerShell":
		d.note(NoEquivalent, n, "wall does not judge commands by their text, which any script gets around")
	default:
		d.note(Unrelated, n, "rule for the tool %s: does not concern the box", quote(tool))
	}
}

// rulePath turns the path of a permission rule, which follows gitignore, into
// one of wall: "//" starts an absolute path, "/" one below the project, "~/" the
// home; a name without a slash matches at any depth.
func rulePath(p string, pattern bool) (out string, rooted bool) {
	switch {
	case strings.HasPrefix(p, "//"):
		return p[1:], false
	case strings.HasPrefix(p, "/"):
		return "." + p, true
	case p == "~", strings.HasPrefix(p, "~/"), strings.HasPrefix(p, "./"), strings.HasPrefix(p, "../"):
		return p, false
	case pattern && !strings.Contains(strings.TrimSuffix(clean(p), "/"), "/") && !strings.HasPrefix(p, "**"):
		return "**/" + p, false
	}
	return p, false
}
