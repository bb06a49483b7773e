package main

// int80 makes a system call through the 32-bit entry of an amd64 kernel.
func int80(nr, a1 uintptr) (ret uintptr)

const haveInt80 = true
