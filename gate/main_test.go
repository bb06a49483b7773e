package gate

import (
	"os"
	"testing"

	"github.com/wallsandbox/wall/nsexec"
)

func TestMain(m *testing.M) {
	nsexec.Main()
	os.Exit(m.Run())
}
