package landlock

import (
	"testing"

	golandlock "github.com/landlock-lsm/go-landlock/landlock"
)

// Our rows are written down from the kernel document; go-landlock's are too, by
// other people.
func TestABITableAgreesWithGoLandlock(t *testing.T) {
	theirs := []golandlock.Config{
		{}, golandlock.V1, golandlock.V2, golandlock.V3, golandlock.V4, golandlock.V5, golandlock.V6,
		golandlock.V7, golandlock.V8, golandlock.V9, golandlock.V10, golandlock.V11,
	}
	if len(theirs) != len(abis) {
		t.Fatalf("%d rows, go-landlock has %d", len(abis), len(theirs))
	}
	for level, c := range theirs {
		row := abiRow(level)
		if row.fs != c.HandledAccessFS || row.net != c.HandledAccessNet || row.scoped != c.Scoped {
			t.Errorf("ABI %d: %v %v %v, go-landlock has %v", level, row.fs, row.net, row.scoped, c)
		}
	}
	if abiRow(NewestABI+5) != abiRow(NewestABI) {
		t.Error("a later ABI is not used at the newest level")
	}
}

func TestFeatureLevels(t *testing.T) {
	for level, row := range abis {
		if got := row.net&net4 != 0; got != (level >= abiNetTCP) {
			t.Errorf("ABI %d: TCP %v", level, got)
		}
		if got := row.scoped != 0; got != (level >= abiScoped) {
			t.Errorf("ABI %d: scopes %v", level, got)
		}
		if got := row.net&^net4 != 0; got != (level >= abiNetUDP) {
			t.Errorf("ABI %d: UDP %v", level, got)
		}
	}
}
