package egress

// A Resolver answers the queries of the box by the rules, and asks nobody.
type Resolver struct {
	Rules *Rules
	Table *Table
	Seen  func(Lookup) // called for every question about a name, before the answer is given; may be nil
}

// A Lookup is a question and its answer.
type Lookup struct {
	Name string // as of ParseName; escaped as in zone files when it is not a host name
	Type string // "A", "HTTPS", "TYPE64"
	Decision
}

// maxMessage is the size of the longest answer, with and without EDNS.
const maxMessage = 512

// Answer gives the answer to a query, over UDP as over TCP (there without the
// length before it), or nil when there is to be none. No answer is longer than
// maxMessage, so that none has to be truncated.
func (r *Resolver) Answer(query []byte) []byte { return nil }
