package egress

// A budget is what a Server may hold at one time. Whatever the box does, at least
// half of the descriptors that stage 1 may have remain for the rest of it.
type budget struct {
	connections int // two descriptors each: one for each end
	setups      int // connections for which names are looked up, or attempts under way: mostAttempts descriptors each
	pipes       int // two descriptors each
}

func budgetFor(files, connections uint64) budget {
	half := int(min(files, 1<<20)) / 2
	b := budget{
		setups: min(max(half/32, 1), 64),
		pipes:  min(max(half/16, 1), 32),
	}
	left := max((half-b.setups*mostAttempts-b.pipes*2)/2, 1)
	b.connections = int(min(connections, uint64(left)))
	return b
}
