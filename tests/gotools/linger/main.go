// linger DURATION [FILE...] reads the files, says "ready", and ends after the duration. Built without cgo it is
// one static file, so that it is all that an image needs.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	// The first process of a process namespace ignores what it does not handle.
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM, syscall.SIGINT)
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "linger DURATION [FILE...]")
		os.Exit(2)
	}
	duration, err := time.ParseDuration(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	for _, name := range os.Args[2:] {
		if _, err := os.ReadFile(name); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	fmt.Println("ready")
	select {
	case <-told:
	case <-time.After(duration):
	}
}
