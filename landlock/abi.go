package landlock

import (
	golandlock "github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
)

// NewestABI is the last Landlock ABI in the table. A newer kernel is used at
// this level: what it could restrict beyond is not restricted.
const NewestABI = 11

// An abi is what one level of the Landlock ABI can restrict. The rows follow
// the "Previous limitations" of the kernel document; a test compares them with
// go-landlock's.
type abi struct {
	linux  string // first release that has it; "" unknown
	fs     golandlock.AccessFSSet
	net    golandlock.AccessNetSet
	scoped golandlock.ScopedSet
}

const (
	fs1 = ll.AccessFSExecute | ll.AccessFSWriteFile | ll.AccessFSReadFile | ll.AccessFSReadDir |
		ll.AccessFSRemoveDir | ll.AccessFSRemoveFile | ll.AccessFSMakeChar | ll.AccessFSMakeDir |
		ll.AccessFSMakeReg | ll.AccessFSMakeSock | ll.AccessFSMakeFifo | ll.AccessFSMakeBlock |
		ll.AccessFSMakeSym
	fs2 = fs1 | ll.AccessFSRefer
	fs3 = fs2 | ll.AccessFSTruncate
	fs5 = fs3 | ll.AccessFSIoctlDev
	fs9 = fs5 | ll.AccessFSResolveUnix

	net4  = ll.AccessNetBindTCP | ll.AccessNetConnectTCP
	net10 = net4 | ll.AccessNetBindUDP | ll.AccessNetConnectSendUDP

	scoped6 = ll.ScopeAbstractUnixSocket | ll.ScopeSignal
)

var abis = [NewestABI + 1]abi{
	0:  {},
	1:  {"5.13", fs1, 0, 0},
	2:  {"5.19", fs2, 0, 0},
	3:  {"6.2", fs3, 0, 0},
	4:  {"6.7", fs3, net4, 0},
	5:  {"6.10", fs5, net4, 0},
	6:  {"6.12", fs5, net4, scoped6},
	7:  {"6.15", fs5, net4, scoped6}, // log flags
	8:  {"7.0", fs5, net4, scoped6},  // all threads at once
	9:  {"7.1", fs9, net4, scoped6},
	10: {"7.2", fs9, net10, scoped6}, // quiet rules
	11: {"", fs9, net10, scoped6},    // no_new_privs flag
}

// Levels at which something a plan can ask for appeared.
const (
	abiNetTCP = 4
	abiScoped = 6
	abiNetUDP = 10
)

// abiRow gives the row for a level, the newest one for later levels.
func abiRow(level int) abi {
	return abis[min(level, NewestABI)]
}

// accessFile is what the kernel accepts in a rule on anything that is not a
// directory (ACCESS_FILE in security/landlock/fs.c); other rights in such a
// rule are EINVAL.
const accessFile golandlock.AccessFSSet = ll.AccessFSExecute | ll.AccessFSWriteFile | ll.AccessFSReadFile |
	ll.AccessFSTruncate | ll.AccessFSIoctlDev | ll.AccessFSResolveUnix
