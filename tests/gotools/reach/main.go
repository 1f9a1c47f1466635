// reach HOST:PORT PATH prints what an HTTP server answers. Built without cgo it looks names up itself, in /etc/hosts first, and is
// one static file: Debian's static busybox crashes where it looks up a name.
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "reach HOST:PORT PATH")
		os.Exit(2)
	}
	if err := reach(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func reach(address, path string) error {
	server, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return err
	}
	defer server.Close()
	if _, err := fmt.Fprintf(server, "GET %s HTTP/1.0\r\n\r\n", path); err != nil {
		return err
	}
	_, err = io.Copy(os.Stdout, server)
	return err
}
