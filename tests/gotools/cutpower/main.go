// cutpower DIRECTORY: ends all writes to the file system of a directory at once, as a power cut does. Bytes in the page cache and in the
// journal's memory never reach the disk (ext4 and xfs, ioctl "shutdown" without log flush).
package main

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"
)

const (
	// EXT4_IOC_SHUTDOWN and XFS_IOC_GOINGDOWN: _IOR('X', 125, __u32).
	shutdown = 0x8004587d
	// EXT4_GOING_FLAGS_NOLOGFLUSH
	noLogFlush = uint32(2)
)

func main() {
	directory, err := os.Open(os.Args[1])
	if err != nil {
		fail(err)
	}
	flags := noLogFlush
	_, _, number := syscall.Syscall(syscall.SYS_IOCTL, directory.Fd(), shutdown, uintptr(unsafe.Pointer(&flags)))
	if number != 0 {
		fail(number)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
