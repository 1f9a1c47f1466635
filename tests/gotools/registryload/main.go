// registryload asks registries for much at once, and says how long it took, as one line of JSON.
//
//	registryload get -clients N (-seconds S | -requests N) [-header "NAME: VALUE"] -path PATH[,PATH...] ADDRESS...
//	registryload each -requests N -path PATH[,PATH...] ADDRESS
//	registryload push -clients N -count N -size BYTES [-whole] -repository NAME ADDRESS...
//	registryload crowd -pulls N -path PATH -pushes N -size BYTES ADDRESS...
//	registryload fill -tags N [-each N] -repositories N [-blobs N] -clients N ADDRESS
//
// Clients take the addresses in turn. get takes the paths in turn, too. each is one client that asks for all paths so often, and reports of each path how
// long it took to the first byte of the body and to the last. A push is one blob: POST, PATCH with all bytes, and PUT, as most clients do it; -whole leaves PATCH out and
// sends the bytes with PUT. crowd pulls until all pushes are done, and once at least; push_ms is what the pushes took. fill pushes manifests without blobs:
// -tags into the repository "large", all of which refer to one manifest, -each tags of one manifest at a time, and one into each of
// -repositories others. -blobs are so many small ones in images of 50, each of which is a repository.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"
)

type options struct {
	clients, requests, count, pulls, pushes, tags, each, repositories, blobs, size int
	seconds                                                                        float64
	path, header, repository                                                       string
	whole                                                                          bool
	addresses                                                                      []string
}

// The observations of the clients, and the time and memory that this program took for them.
type report struct {
	Requests  int                `json:"requests"`
	Bytes     int64              `json:"bytes"`
	Failed    int                `json:"failed"`
	Why       string             `json:"why,omitempty"`
	Seconds   float64            `json:"seconds"`
	OwnCPU    float64            `json:"own_cpu_s"`
	Quantiles map[string]float64 `json:"ms"`
	Pushes    map[string]float64 `json:"push_ms,omitempty"`
	Each      []timed            `json:"each,omitempty"`
	times     []float64
}

// One answer.
type timed struct {
	Path  string  `json:"path"`
	First float64 `json:"first_ms"`
	Whole float64 `json:"ms"`
	Bytes int64   `json:"bytes"`
}

func parse(arguments []string) options {
	var o options
	flags := flag.NewFlagSet("registryload", flag.ExitOnError)
	flags.IntVar(&o.clients, "clients", 1, "connections at a time")
	flags.IntVar(&o.requests, "requests", 0, "requests in all")
	flags.Float64Var(&o.seconds, "seconds", 0, "time in all")
	flags.StringVar(&o.path, "path", "", "what is asked for; several with commas between them")
	flags.StringVar(&o.header, "header", "", "a header of each request")
	flags.IntVar(&o.count, "count", 1, "blobs that are pushed")
	flags.IntVar(&o.size, "size", 1024, "bytes of each")
	flags.BoolVar(&o.whole, "whole", false, "send a blob with PUT")
	flags.StringVar(&o.repository, "repository", "load", "where blobs are pushed to")
	flags.IntVar(&o.pulls, "pulls", 300, "clients that pull")
	flags.IntVar(&o.pushes, "pushes", 50, "clients that push")
	flags.IntVar(&o.tags, "tags", 0, "tags of one repository")
	flags.IntVar(&o.each, "each", 1, "tags of each manifest")
	flags.IntVar(&o.repositories, "repositories", 0, "repositories")
	flags.IntVar(&o.blobs, "blobs", 0, "blobs in images")
	_ = flags.Parse(arguments)
	o.addresses = flags.Args()
	if len(o.addresses) == 0 {
		fail(fmt.Errorf("no address is named"))
	}
	return o
}

func (o options) connection(number int) *connection {
	return &connection{address: o.addresses[number%len(o.addresses)]}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "registryload:", err)
	os.Exit(1)
}

func main() {
	works := map[string]func(options) report{"get": get, "each": each, "push": push, "crowd": crowd, "fill": fill}
	if len(os.Args) < 2 || works[os.Args[1]] == nil {
		fail(fmt.Errorf("get, each, push, crowd or fill?"))
	}
	found := works[os.Args[1]](parse(os.Args[2:]))
	found.finish()
}

func (r *report) finish() {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		fail(err)
	}
	r.OwnCPU = time.Duration(usage.Utime.Nano()+usage.Stime.Nano()).Seconds() - r.OwnCPU
	r.Quantiles = quantiles(r.times)
	text, err := json.Marshal(r)
	if err != nil {
		fail(err)
	}
	fmt.Println(string(text))
	if r.Requests == 0 {
		os.Exit(1)
	}
}

func quantiles(times []float64) map[string]float64 {
	if len(times) == 0 {
		return nil
	}
	sort.Float64s(times)
	at := func(part float64) float64 { return times[min(int(part*float64(len(times))), len(times)-1)] }
	return map[string]float64{"p50": at(0.5), "p90": at(0.9), "p95": at(0.95), "p99": at(0.99), "lowest": times[0], "highest": times[len(times)-1]}
}

// Adds up what clients report, each by calls of its own.
type sum struct {
	lock sync.Mutex
	report
}

func (s *sum) add(began time.Time, bytes int64, err error) {
	took := float64(time.Since(began).Nanoseconds()) / 1e6
	s.lock.Lock()
	defer s.lock.Unlock()
	if err != nil {
		s.Failed++
		s.Why = err.Error()
		return
	}
	s.Requests++
	s.Bytes += bytes
	s.times = append(s.times, took)
}

// together has so many clients work, and waits for all of them. Each begins when all have a connection.
func together(o options, clients int, work func(number int, client *connection)) float64 {
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	for number := range clients {
		ready.Add(1)
		done.Add(1)
		go func() {
			defer done.Done()
			client := o.connection(number)
			_ = client.open()
			ready.Done()
			<-start
			work(number, client)
			client.close()
		}()
	}
	ready.Wait()
	began := time.Now()
	close(start)
	done.Wait()
	return time.Since(began).Seconds()
}

func expect(found answer, err error, wanted ...int) error {
	if err != nil {
		return err
	}
	for _, status := range wanted {
		if found.status == status {
			return nil
		}
	}
	return fmt.Errorf("status %d", found.status)
}

// Of a redirect or an upload's address, what is asked for.
func pathOf(location string) string {
	if _, rest, ok := strings.Cut(location, "://"); ok {
		if at := strings.IndexByte(rest, '/'); at >= 0 {
			return rest[at:]
		}
	}
	return location
}
