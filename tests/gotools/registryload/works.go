package main

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	indexType    = "application/vnd.oci.image.index.v1+json"
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	// Blobs of an image that fill pushes, the first of which is its configuration.
	blobsOfImage = 50
)

// get asks for the paths again and again.
func get(o options) report {
	var all sum
	var asked, turn atomic.Int64
	paths := strings.Split(o.path, ",")
	headers := ""
	if o.header != "" {
		headers = o.header + "\r\n"
	}
	end := time.Now().Add(time.Duration(o.seconds * float64(time.Second)))
	isDone := func() bool {
		if o.requests > 0 {
			return asked.Add(1) > int64(o.requests)
		}
		return time.Now().After(end)
	}
	all.Seconds = together(o, o.clients, func(_ int, client *connection) {
		for !isDone() {
			path := paths[int(turn.Add(1)-1)%len(paths)]
			began := time.Now()
			found, err := client.ask("GET", path, headers, nil)
			if err = expect(found, err, 200, 206); err != nil {
				time.Sleep(time.Millisecond)
			}
			all.add(began, found.bytes, err)
		}
	})
	return all.report
}

// each asks for one path after the other.
func each(o options) report {
	var all sum
	all.Seconds = together(o, 1, func(_ int, client *connection) {
		for range max(o.requests, 1) {
			for _, path := range strings.Split(o.path, ",") {
				began := time.Now()
				found, err := client.ask("GET", path, "", nil)
				ended := time.Now()
				err = expect(found, err, 200)
				all.add(began, found.bytes, err)
				if err == nil {
					ms := func(until time.Time) float64 { return float64(until.Sub(began).Nanoseconds()) / 1e6 }
					all.Each = append(all.Each, timed{path, ms(found.first), ms(ended), found.bytes})
				}
			}
		}
	})
	return all.report
}

// Bytes that no registry has, and their digest.
func blob(size int) ([]byte, string) {
	bytes := make([]byte, size)
	random := rand.NewChaCha8(sha256.Sum256([]byte(fmt.Sprint(time.Now().UnixNano(), rand.Uint64()))))
	_, _ = random.Read(bytes)
	return bytes, fmt.Sprintf("sha256:%x", sha256.Sum256(bytes))
}

// pushBlob returns when the registry has acknowledged it.
func pushBlob(client *connection, o options, repository string, bytes []byte, digest string) error {
	const kind = "Content-Type: application/octet-stream\r\n"
	begun, err := client.ask("POST", "/v2/"+repository+"/blobs/uploads/", "", nil)
	if err := expect(begun, err, 202); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	place, last := pathOf(begun.location), bytes
	if !o.whole {
		patched, err := client.ask("PATCH", place, kind, bytes)
		if err := expect(patched, err, 202); err != nil {
			return fmt.Errorf("send: %w", err)
		}
		place, last = pathOf(patched.location), nil
	}
	separator := "?"
	if strings.Contains(place, "?") {
		separator = "&"
	}
	ended, err := client.ask("PUT", place+separator+"digest="+digest, kind, last)
	if err := expect(ended, err, 201); err != nil {
		return fmt.Errorf("finish: %w", err)
	}
	return nil
}

// push makes the bytes before the clock runs.
func push(o options) report {
	type made struct {
		bytes  []byte
		digest string
	}
	blobs := make(chan made, o.count)
	for range o.count {
		bytes, digest := blob(o.size)
		blobs <- made{bytes, digest}
	}
	close(blobs)
	var all sum
	all.OwnCPU = ownCPU()
	all.Seconds = together(o, o.clients, func(_ int, client *connection) {
		for one := range blobs {
			began := time.Now()
			err := pushBlob(client, o, o.repository, one.bytes, one.digest)
			all.add(began, int64(len(one.bytes)), err)
		}
	})
	return all.report
}

func ownCPU() float64 {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}

// crowd pulls and pushes at once.
func crowd(o options) report {
	var all, pushed sum
	var pushing atomic.Int64
	pushing.Store(int64(o.pushes))
	all.Seconds = together(o, o.pulls+o.pushes, func(number int, client *connection) {
		if number < o.pushes {
			defer pushing.Add(-1)
			bytes, digest := blob(o.size)
			began := time.Now()
			err := pushBlob(client, o, fmt.Sprintf("crowd/%d", number), bytes, digest)
			all.add(began, int64(o.size), err)
			pushed.add(began, int64(o.size), err)
			return
		}
		for first := true; first || pushing.Load() > 0; first = false {
			began := time.Now()
			found, err := client.ask("GET", o.path, "", nil)
			if err = expect(found, err, 200); err != nil {
				time.Sleep(10 * time.Millisecond)
			}
			all.add(began, found.bytes, err)
		}
	})
	all.Pushes = quantiles(pushed.times)
	return all.report
}

// putImage pushes an image whose blobs nobody else has.
func putImage(client *connection, o options, all *sum, number, blobs int) {
	repository := fmt.Sprintf("many/image-%06d", number)
	var named []string
	for range blobs {
		bytes, digest := blob(20)
		began := time.Now()
		all.add(began, int64(len(bytes)), pushBlob(client, o, repository, bytes, digest))
		named = append(named, fmt.Sprintf(`{"mediaType":"application/octet-stream","digest":%q,"size":%d}`, digest, len(bytes)))
	}
	content := fmt.Appendf(nil, `{"schemaVersion":2,"mediaType":%q,"config":%s,"layers":[%s]}`, manifestType, named[0], strings.Join(named[1:], ","))
	began := time.Now()
	found, err := client.ask("PUT", "/v2/"+repository+"/manifests/latest", "Content-Type: "+manifestType+"\r\n", content)
	all.add(began, 0, expect(found, err, 201))
}

// fill pushes manifests that name no blob, and images.
func fill(o options) report {
	var all sum
	putManifest := func(client *connection, repository, reference string, content []byte) {
		began := time.Now()
		found, err := client.ask("PUT", "/v2/"+repository+"/manifests/"+reference, "Content-Type: "+indexType+"\r\n", content)
		all.add(began, 0, expect(found, err, 201))
	}
	subject := fmt.Appendf(nil, `{"schemaVersion":2,"mediaType":%q,"manifests":[]}`, indexType)
	refers := func(number int) []byte {
		return fmt.Appendf(nil,
			`{"schemaVersion":2,"mediaType":%q,"manifests":[],"artifactType":"application/x.note","subject":{"mediaType":%q,"digest":"sha256:%x","size":%d},"annotations":{"number":"%d"}}`,
			indexType, indexType, sha256.Sum256(subject), len(subject), number)
	}
	first := o.connection(0)
	putManifest(first, "large", "subject", subject)
	first.close()
	var taken atomic.Int64
	pushes := int64((o.tags + o.each - 1) / o.each)
	images := int64((o.blobs + blobsOfImage - 1) / blobsOfImage)
	others := pushes + int64(o.repositories)
	all.Seconds = together(o, o.clients, func(_ int, client *connection) {
		for number := taken.Add(1) - 1; number < others+images; number = taken.Add(1) - 1 {
			if number >= others {
				image := int(number - others)
				putImage(client, o, &all, image, min(blobsOfImage, o.blobs-image*blobsOfImage))
				continue
			}
			if number >= pushes {
				putManifest(client, fmt.Sprintf("many/repository-%06d", number-pushes), "latest", subject)
				continue
			}
			content := refers(int(number))
			var tags []string
			for tag := int(number) * o.each; tag < min((int(number)+1)*o.each, o.tags); tag++ {
				tags = append(tags, fmt.Sprintf("tag-%06d", tag))
			}
			reference := tags[0]
			if len(tags) > 1 {
				reference = fmt.Sprintf("sha256:%x?tag=%s", sha256.Sum256(content), strings.Join(tags, "&tag="))
			}
			putManifest(client, "large", reference, content)
		}
	})
	return all.report
}
