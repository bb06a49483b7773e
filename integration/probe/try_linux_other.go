//go:build linux && !amd64

package main

import "golang.org/x/sys/unix"

func modifyLDT([]string) (string, error) { return "", unix.ENOSYS }

func ioPL([]string) (string, error) { return "", unix.ENOSYS }
