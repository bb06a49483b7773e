package lint

// phaseChecks are those that look at the network, for each phase.
var phaseChecks = []struct {
	code  string
	check func(*check)
}{
	{"W010", func(x *check) { x.coveredHosts(false) }},
	{"W011", neverMatches},
	{"W020", networkWithCredentials},
	{"W022", publicSuffixes},
	{"W023", uploadHosts},
	{"W024", innerNetwork},
	{"W051", loopbackServices},
	{"W061", contradictions},
	{"W062", uncheckedPorts},
	{"W063", refusedNetwork},
}

// checks are the rules that look at a profile which parses, by code. They are
// apart from the table of rules, which they refer to.
var checks = []struct {
	code  string
	check func(*check)
}{
	{"W007", projectWidens},
	{"W010", deadRules},
	{"W011", neverMatches},
	{"W012", grantCancelsHide},
	{"W013", writablePath},
	{"W014", writableStartup},
	{"W015", writableHooks},
	{"W016", systemWritable},
	{"W017", socketGranted},
	{"W018", homeWritable},
	{"W019", workspaceTooWide},
	{"W020", networkWithCredentials},
	{"W021", credentialsGranted},
	{"W022", publicSuffixes},
	{"W023", uploadHosts},
	{"W024", innerNetwork},
	{"W025", scrubOff},
	{"W026", loaderVariables},
	{"W027", interpreterVariables},
	{"W028", grantWithoutWhy},
	{"W029", nonPortable},
	{"W030", unenforceable},
	{"W031", gateLimits},
	{"W032", secretInSet},
	{"W033", protectDropped},
	{"W034", hideDropped},
	{"W035", enforceOff},
	{"W036", degradeWithoutRequire},
	{"W037", seccompFile},
	{"W038", nestedSandboxes},
	{"W039", deviceGranted},
	{"W040", singleFileWrite},
	{"W041", writableRepository},
	{"W042", deepGlob},
	{"W043", homeUnhidden},
	{"W044", noDescription},
	{"W045", allowEverything},
	{"W046", managedVariables},
	{"W047", redundant},
	{"W048", credentialVariables},
	{"W049", terminalInherited},
	{"W050", grantNotOptional},
	{"W051", loopbackServices},
	{"W053", unprotected},
	{"W056", exposedSources},
	{"W057", sourcePrograms},
	{"W058", sourceShells},
	{"W059", storedForUntrusted},
	{"W060", keptCaches},
	{"W061", contradictions},
	{"W062", uncheckedPorts},
	{"W063", refusedNetwork},
}
