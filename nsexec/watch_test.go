package nsexec

import (
	"reflect"
	"testing"
)

func TestGoneMounts(t *testing.T) {
	base := mountPoints([]byte("22 21 0:20 / / ro - tmpfs tmpfs rw\n23 22 0:21 / /a\\040b\\134\\012 rw - ext4 /dev/x rw\n24 22 0:21 / /c rw - ext4 /dev/x rw\nodd line\n"))
	if len(base) != 3 {
		t.Fatalf("base %v", base)
	}
	tests := []struct {
		now  map[string]string
		want []string
	}{
		{base, nil},
		{map[string]string{"22": "/", "23": "/moved", "24": "/c", "25": "/new"}, nil},
		{map[string]string{"22": "/"}, []string{"/a b\\\n", "/c"}},
	}
	for _, tt := range tests {
		if got := goneMounts(base, tt.now); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("goneMounts(%v) = %q, want %q", tt.now, got, tt.want)
		}
	}
}
