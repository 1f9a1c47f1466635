// tarlist prints what Go's archive/tar, which containerd and umoci unpack layers with, makes of the archives named
// on the command line: one line for each entry, then "ok" or "error". Byte strings are in hexadecimal.
package main

import (
	"archive/tar"
	"bufio"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
)

// Contents of larger files (sparse ones claim to be) are not hashed.
const maxHashed = 64 << 20

func main() {
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for _, name := range os.Args[1:] {
		if err := list(out, name); err != nil {
			fmt.Fprintf(out, "error\t%v\n", err)
		} else {
			fmt.Fprintln(out, "ok")
		}
	}
}

func list(out io.Writer, name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	// A plain reader: with a seekable one, archive/tar notices truncation at other places.
	reader := tar.NewReader(bufio.NewReader(file))
	for {
		header, err := reader.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		digest := "-"
		if header.Typeflag == tar.TypeReg || header.Typeflag == tar.TypeGNUSparse || header.Typeflag == tar.TypeCont {
			if header.Size <= maxHashed {
				hash := sha256.New()
				if _, err := io.Copy(hash, reader); err != nil {
					return err
				}
				digest = fmt.Sprintf("%x", hash.Sum(nil))
			}
		}
		var xattrs []string
		for key, value := range header.PAXRecords {
			if strings.HasPrefix(key, "SCHILY.xattr.") {
				xattrs = append(xattrs, fmt.Sprintf("%x=%x", strings.TrimPrefix(key, "SCHILY.xattr."), value))
			}
		}
		sort.Strings(xattrs)
		fmt.Fprintf(out, "%c\t%x\t%x\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%s\n",
			header.Typeflag, header.Name, header.Linkname, header.Mode, header.Uid, header.Gid,
			header.ModTime.Unix(), header.ModTime.Nanosecond(), header.Size, header.Devmajor, header.Devminor,
			digest, strings.Join(xattrs, ","))
	}
}
