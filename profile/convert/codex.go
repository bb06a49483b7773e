package convert

import "strings"

// codex converts a config.toml of Codex: the sandbox modes, or the permission
// profile that default_permissions names, and the policy for the environment.
func codex(d *draft, root *node) {
	mode, hasMode := d.oneOf(root, "sandbox_mode", "read-only", "workspace-write", "danger-full-access")
	perm, hasPerm := d.str(root, "default_permissions")
	write := d.table(root, "sandbox_workspace_write")
	profiles := d.table(root, "permissions")
	switch {
	case hasMode:
		d.sandboxMode(mode, write)
		if hasPerm {
			d.note(Different, perm, "codex goes by sandbox_mode when both are there")
		}
		if profiles != nil {
			profiles.seeAll()
			d.note(Different, profiles, "codex goes by sandbox_mode when both are there")
		}
	case hasPerm:
		d.permissions(perm, profiles)
		if write != nil {
			write.seeAll()
			d.note(Different, write, "codex goes by default_permissions here")
		}
	default:
		if write != nil {
			write.seeAll()
			d.note(Different, write, "without sandbox_mode = \"workspace-write\" it does not apply")
		}
		if profiles != nil {
			profiles.seeAll()
			d.note(Different, profiles, "without default_permissions none of them applies")
		}
		d.note(Different, root, "neither sandbox_mode nor default_permissions: the workspace is read-only")
	}
	d.denyWins()
	if env := d.table(root, "shell_environment_policy"); env != nil {
		d.codexEnvironment(env)
	}
	for _, name := range []string{"profile", "profiles"} {
		d.none(root, name, "the profiles of codex are not read: import one as a file of its own")
	}
	d.none(root, "allow_login_shell", "a box runs exactly the command that it is given")
	d.unrelated(root, "$schema", "model", "model_provider", "model_providers", "model_context_window", "model_max_output_tokens", "model_reasoning_effort",
		"model_reasoning_summary", "model_verbosity", "model_supports_reasoning_summaries", "model_instructions_file", "review_model", "oss_provider",
		"approval_policy", "approvals_reviewer", "personality", "service_tier", "web_search", "notify", "tui", "history", "file_opener",
		"hide_agent_reasoning", "show_raw_agent_reasoning", "disable_response_storage", "mcp_servers", "features", "tools", "projects",
		"project_doc_max_bytes", "project_doc_fallback_filenames", "project_root_markers", "instructions", "developer_instructions",
		"chatgpt_base_url", "openai_base_url", "forced_login_method", "forced_chatgpt_workspace_id", "cli_auth_credentials_store",
		"mcp_oauth_credentials_store", "preferred_auth_method", "otel", "analytics", "feedback", "agents", "apps", "skills", "memories", "notice",
		"check_for_update_on_startup", "disable_paste_burst", "log_dir", "sqlite_home", "windows", "suppress_unstable_features_warning", "tool_output_token_limit")
}

func (d *draft) sandboxMode(mode, write *node) {
	switch mode.text {
	case "workspace-write":
		d.workspace = "read-write"
	case "danger-full-access":
		d.workspace = "read-write"
		d.note(Different, mode, "the walls stay up, with a writable workspace and no network; enforce = \"off\" takes them down")
	}
	if write == nil {
		return
	}
	if mode.text != "workspace-write" {
		write.seeAll()
		d.note(Different, write, "without sandbox_mode = \"workspace-write\" it does not apply")
		return
	}
	for _, n := range d.strings(write, "writable_roots") {
		if !strings.HasPrefix(n.text, "/") && !strings.HasPrefix(n.text, "~/") && n.text != "~" {
			d.note(NoEquivalent, n, "%s is relative to codex's own directory; write the absolute path", quote(n.text))
			continue
		}
		d.path(n, n.text, forWrite)
	}
	if f, on := d.boolean(write, "network_access"); on {
		d.network = "host"
		d.note(Different, f, "mode = \"host\" shares the whole network of the host, its loopback included, as in codex")
	}
	for _, name := range []string{"exclude_tmpdir_env_var", "exclude_slash_tmp"} {
		if f, _ := d.boolean(write, name); f != nil {
			d.note(Different, f, "the box has a private /tmp, gone after the run")
		}
	}
}

// permissions converts the permission profile called by default_permissions.
func (d *draft) permissions(perm, profiles *node) {
	switch perm.text {
	case ":read-only":
	case ":workspace":
		d.workspace = "read-write"
	case ":danger-full-access":
		d.workspace = "read-write"
		d.note(Different, perm, "the walls stay up, with a writable workspace and no network; enforce = \"off\" takes them down")
	}
	if profiles == nil {
		if !strings.HasPrefix(perm.text, ":") {
			d.note(NotUnderstood, perm, "there is no permission profile %s in the file", quote(perm.text))
		}
		return
	}
	found := false
	for _, f := range profiles.fields {
		f.seen = true
		if f.name != perm.text {
			f.seeAll()
			d.note(Different, f, "not the one that default_permissions names")
			continue
		}
		found = true
		if f.kind != object {
			f.seeAll()
			d.fail(f, "%s must be %s, not %s", f.key, object, f.kind)
			continue
		}
		d.unrelated(f, "description")
		if x, ok := d.str(f, "extends"); ok {
			if x.text == ":workspace" {
				d.workspace = "read-write"
			} else if x.text != ":read-only" {
				d.note(Lost, x, "%s is not read: add what it denies and allows", quote(x.text))
			}
		}
		d.none(f, "workspace_roots", "a run has one workspace; grant further directories")
		if fs := d.table(f, "filesystem"); fs != nil {
			d.codexFiles(fs, "")
		}
		if net := d.table(f, "network"); net != nil {
			d.codexNetwork(net)
		}
	}
	if !found && !strings.HasPrefix(perm.text, ":") {
		d.note(NotUnderstood, perm, "there is no permission profile %s in the file", quote(perm.text))
	}
}

// codexFiles converts a table of paths, each with "read", "write" or "deny"
// ("none"). Names with a colon are places that codex knows.
func (d *draft) codexFiles(fs *node, under string) {
	for _, f := range fs.fields {
		f.seen = true
		if under == "" && (f.name == ":workspace_roots" || f.name == ":project_roots" || f.name == ":cwd") {
			if f.kind == object {
				d.codexFiles(f, ".")
				continue
			}
			d.codexAccess(f, ".")
			continue
		}
		if f.kind == object {
			f.seeAll()
			d.note(NotUnderstood, f, "a table for %s", quote(f.name))
			continue
		}
		if f.kind == number && f.name == "glob_scan_max_depth" {
			d.note(Unrelated, f, "wall bounds the search for patterns by itself")
			continue
		}
		switch p := f.name; {
		case under != "":
			d.codexAccess(f, under+"/"+p)
		case p == ":root":
			if f.kind == text && (f.text == "deny" || f.text == "none") {
				d.view, d.home = "system", "scratch"
				d.note(Different, f, "view = \"system\": the operating system, the workspace and what is granted; the home is empty and gone after the run")
				continue
			}
			d.codexAccess(f, "/")
		case p == ":minimal":
			if f.text != "read" {
				d.note(NoEquivalent, f, "a box always shows the operating system, read-only")
			}
		case p == ":tmpdir" || p == ":slash_tmp":
			d.note(Different, f, "the box has a private /tmp, gone after the run")
		case strings.HasPrefix(p, ":"):
			d.note(NotUnderstood, f, "%s", quote(p))
		default:
			d.codexAccess(f, p)
		}
	}
}

func (d *draft) codexAccess(f *node, p string) {
	if f.kind != text {
		d.fail(f, "%s must be a string, not %s", f.key, f.kind)
		return
	}
	switch f.text {
	case "read":
		if strings.HasPrefix(p, "./") {
			d.path(f, p, forProtect) // inside a writable workspace it means: not writable
			return
		}
		d.path(f, p, forRead)
	case "write":
		d.path(f, p, forWrite)
	case "deny", "none":
		d.path(f, p, forHide)
	default:
		d.fail(f, "%s must be one of read, write, deny", f.key)
	}
}

func (d *draft) codexNetwork(net *node) {
	enabled, on := d.boolean(net, "enabled")
	domains := d.table(net, "domains")
	if domains != nil {
		domains.seeAll()
		for _, f := range domains.fields {
			switch {
			case f.kind == text && f.text == "allow":
				if on {
					d.host(f, &d.allow, "allow", f.name)
				} else {
					d.note(Different, f, "the network is not enabled")
				}
			case f.kind == text && f.text == "deny":
				d.host(f, &d.deny, "deny", f.name)
			default:
				d.fail(f, "%s must be one of allow, deny", f.key)
			}
		}
	}
	switch {
	case on && (domains == nil || len(domains.fields) == 0):
		d.network = "host"
		d.note(Different, enabled, "mode = \"host\" shares the whole network of the host, its loopback included")
	case on && len(d.allow) == 0:
		d.note(Different, enabled, "no host is allowed by name, so that there is no network: list the hosts in network.allow")
	case on:
		d.finishNetwork(net)
	}
	for _, name := range []string{"proxy_url", "socks_url", "enable_socks5", "enable_socks5_udp", "allow_upstream_proxy", "mode", "dangerously_allow_all_unix_sockets", "unix_sockets", "allow_local_binding"} {
		d.none(net, name, "wall has no proxy and no rules for it; the sockets of the host stay covered")
	}
}

// codexEnvironment converts shell_environment_policy: what is inherited, then
// exclude, then set, then include_only.
func (d *draft) codexEnvironment(env *node) {
	inherit, _ := d.oneOf(env, "inherit", "all", "core", "none")
	only := d.strings(env, "include_only")
	d.scrub = "strict"
	if (inherit == nil || inherit.text == "all") && len(only) == 0 {
		d.scrub = "deny-secrets"
	}
	if inherit != nil && inherit.text == "none" {
		d.note(Different, inherit, "PATH, TERM, LANG and a few more cross always")
	}
	if f, on := d.boolean(env, "ignore_default_excludes"); on {
		d.note(Different, f, "names that look like credentials do not cross; name those that must in \"pass\"")
	}
	if len(only) > 0 {
		d.note(Different, env.get("include_only"), "PATH, TERM, LANG and a few more cross as well")
	}
	for _, n := range only {
		d.envPattern(n, &d.envAllow, "allow", n.text)
	}
	for _, n := range d.strings(env, "exclude") {
		if n.text == "*" {
			d.scrub = "strict"
			d.envAllow = nil
			d.note(Different, n, "scrub = \"strict\": PATH, TERM, LANG and a few more cross always")
			continue
		}
		if !d.envPattern(n, &d.envDeny, "deny", n.text) {
			d.scrub = "strict" // so that what the pattern meant does not cross
		}
	}
	if set := d.table(env, "set"); set != nil {
		d.variables(set)
	}
	d.none(env, "filters", "write the names into environment.allow and environment.deny")
	if f, on := d.boolean(env, "experimental_use_profile"); on {
		d.note(NoEquivalent, f, "no shell profile is read")
	}
}
