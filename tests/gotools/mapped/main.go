// mapped writes a file to standard output by way of a mapping, so that every page is reached by a page fault, as the
// text of a running program is: mapped FILE
package main

import (
	"fmt"
	"os"
	"syscall"
)

func main() {
	if err := show(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func show(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	data, err := syscall.Mmap(int(file.Fd()), 0, int(info.Size()), syscall.PROT_READ, syscall.MAP_PRIVATE)
	if err != nil {
		return err
	}
	// A page fault, not the kernel copying out of the mapping for write(2), which would get EFAULT instead of a signal.
	copied := append([]byte(nil), data...)
	_, err = os.Stdout.Write(copied)
	return err
}
