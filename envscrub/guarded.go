package envscrub

// Guarded says why a variable is of a kind that is kept from where it is not
// needed, as deny-secrets judges it: "has the name of a credential" and the like;
// "" when it is not.
func Guarded(name, value string) string {
	g, _ := guardOf(name, value)
	return g.text()
}
