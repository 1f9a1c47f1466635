package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// How long a registry may say nothing.
const patience = 120 * time.Second

// Where the kernel would put bodies. With MSG_TRUNC it throws them away, so nothing is ever written here.
var nowhere = make([]byte, 4<<20)

// A connection that speaks HTTP/1.1. Bodies are thrown away by the kernel without being copied, so that this program needs little of
// the processors that it shares with what it measures.
type connection struct {
	address string
	socket  *net.TCPConn
	reader  *bufio.Reader
}

type answer struct {
	status   int
	location string
	bytes    int64
	// When the first byte of the body came.
	first time.Time
}

func (c *connection) open() error {
	if c.socket != nil {
		return nil
	}
	socket, err := net.DialTimeout("tcp", c.address, patience)
	if err != nil {
		return err
	}
	c.socket = socket.(*net.TCPConn)
	c.reader = bufio.NewReaderSize(c.socket, 16<<10)
	return nil
}

func (c *connection) close() {
	if c.socket != nil {
		c.socket.Close()
		c.socket = nil
	}
}

// ask sends a request and reads its answer to the end. After an error the next one has a new connection.
func (c *connection) ask(method, path, headers string, body []byte) (answer, error) {
	if err := c.open(); err != nil {
		return answer{}, err
	}
	found, err := c.exchange(method, path, headers, body)
	if err != nil {
		c.close()
	}
	return found, err
}

func (c *connection) exchange(method, path, headers string, body []byte) (answer, error) {
	c.socket.SetDeadline(time.Now().Add(patience))
	length := ""
	if body != nil || method != "GET" {
		length = fmt.Sprintf("Content-Length: %d\r\n", len(body))
	}
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n%s%s\r\n", method, path, c.address, length, headers)
	buffers := net.Buffers{[]byte(head)}
	if len(body) > 0 {
		buffers = append(buffers, body)
	}
	if _, err := buffers.WriteTo(c.socket); err != nil {
		return answer{}, err
	}
	return c.answer()
}

func (c *connection) answer() (answer, error) {
	line, err := c.line()
	if err != nil {
		return answer{}, err
	}
	words := strings.SplitN(line, " ", 3)
	if len(words) < 2 {
		return answer{}, fmt.Errorf("%q is no answer", line)
	}
	status, err := strconv.Atoi(words[1])
	if err != nil {
		return answer{}, err
	}
	found := answer{status: status}
	length, chunked, ends := int64(0), false, false
	for {
		line, err := c.line()
		if err != nil {
			return answer{}, err
		}
		if line == "" {
			break
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch strings.ToLower(name) {
		case "content-length":
			length, err = strconv.ParseInt(value, 10, 64)
		case "transfer-encoding":
			chunked = value == "chunked"
		case "location":
			found.location = value
		case "connection":
			ends = strings.EqualFold(value, "close")
		}
		if err != nil {
			return answer{}, err
		}
	}
	// What has no first byte, or tells no length, counts as there after its head.
	_, _ = c.reader.Peek(int(min(max(length, 0), 1)))
	found.first = time.Now()
	if chunked {
		found.bytes, err = c.throwChunks()
	} else {
		found.bytes, err = length, c.throw(length)
	}
	if ends {
		c.close()
	}
	return found, err
}

func (c *connection) line() (string, error) {
	line, err := c.reader.ReadString('\n')
	return strings.TrimRight(line, "\r\n"), err
}

// throw reads so many bytes and keeps none.
func (c *connection) throw(left int64) error {
	buffered, err := c.reader.Discard(int(min(left, int64(c.reader.Buffered()))))
	left -= int64(buffered)
	if err != nil || left == 0 {
		return err
	}
	raw, err := c.socket.SyscallConn()
	if err != nil {
		return err
	}
	for left > 0 {
		var got int
		var failed error
		err := raw.Read(func(descriptor uintptr) bool {
			got, _, failed = syscall.Recvfrom(int(descriptor), nowhere[:min(left, int64(len(nowhere)))], syscall.MSG_TRUNC)
			return failed != syscall.EAGAIN
		})
		switch {
		case err != nil:
			return err
		case failed == syscall.EINTR:
			continue
		case failed != nil:
			return failed
		case got == 0:
			return io.ErrUnexpectedEOF
		}
		left -= int64(got)
	}
	return nil
}

func (c *connection) throwChunks() (int64, error) {
	total := int64(0)
	for {
		line, err := c.line()
		if err != nil {
			return total, err
		}
		size, err := strconv.ParseInt(line, 16, 64)
		if err != nil {
			return total, err
		}
		// A line ends each chunk, and the last one, which is empty, too.
		if err := c.throw(size + 2); err != nil {
			return total, err
		}
		if size == 0 {
			return total, nil
		}
		total += size
	}
}
