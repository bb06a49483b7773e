package nsexec

// An NftablesError says that the kernel cannot redirect the connections of a box as
// plan.NetRedirect wants it. The command did not run; a plan with plan.NetProxy may
// work.
type NftablesError struct{ Err error }

func (e *NftablesError) Error() string {
	return "connections cannot be redirected here: " + e.Err.Error()
}

// Unwrap gives the cause, a syscall.Errno where there is one.
func (e *NftablesError) Unwrap() error { return e.Err }
