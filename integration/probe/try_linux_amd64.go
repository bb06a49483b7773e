package main

import "golang.org/x/sys/unix"

func modifyLDT([]string) (string, error) { return "", sys(unix.SYS_MODIFY_LDT, 0, 0, 0) }

// ioPL asks for port access; a process that ends takes it along.
func ioPL([]string) (string, error) { return "", sys(unix.SYS_IOPL, 3) }
