package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// cluster is a PostgreSQL with a database for this run.
type cluster struct {
	admin    string // the address that may create databases
	name     string
	database string   // the address of ours
	more     []string // names
}

// openCluster makes a database on the cluster of TOLL_TEST_POSTGRES.
func openCluster(ctx context.Context) (*cluster, error) {
	c := &cluster{admin: os.Getenv("TOLL_TEST_POSTGRES"), name: fmt.Sprintf("toll_bench_%d", os.Getpid())}
	if c.admin == "" {
		return nil, errors.New("TOLL_TEST_POSTGRES is not set; run this with make bench")
	}
	u, err := url.Parse(c.admin)
	if err != nil {
		return nil, errors.New("TOLL_TEST_POSTGRES is not a valid URL")
	}
	u.Path = "/" + c.name
	c.database = u.String()
	if err := c.exec(ctx, "CREATE DATABASE "+c.name); err != nil {
		return nil, err
	}
	return c, nil
}

// another makes one more database and returns its address.
func (c *cluster) another(ctx context.Context, name string) (string, error) {
	name = c.name + "_" + strings.ReplaceAll(name, "-", "_")
	c.more = append(c.more, name)
	return strings.Replace(c.database, "/"+c.name, "/"+name, 1), c.exec(ctx, "CREATE DATABASE "+name)
}

func (c *cluster) exec(ctx context.Context, statement string) error {
	conn, err := pgx.Connect(ctx, c.admin)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	return errors.Join(err, conn.Close(ctx))
}

func (c *cluster) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var faults []error
	for _, name := range append(c.more, c.name) {
		faults = append(faults, c.exec(ctx, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)"))
	}
	return errors.Join(faults...)
}

// cpuTime is what the backends that serve our databases have used of the processors, 0 where that cannot be seen. The
// processes that write the log ahead and checkpoints are not in it.
func (c *cluster) cpuTime() backends {
	if c == nil {
		return nil
	}
	const tick = 10 * time.Millisecond // what /proc counts in, on every Linux
	titles, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	out := backends{}
	for _, path := range titles {
		title, err := os.ReadFile(path)
		if err != nil || !bytes.HasPrefix(title, []byte("postgres:")) || !bytes.Contains(title, []byte(" "+c.name)) {
			continue
		}
		stat, err := os.ReadFile(filepath.Join(filepath.Dir(path), "stat"))
		if err != nil {
			continue // it has just ended
		}
		// The name before the last parenthesis may contain blanks; utime and stime are fields 14 and 15 of all.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 13 {
			continue
		}
		for _, f := range fields[11:13] {
			if n, err := strconv.ParseInt(f, 10, 64); err == nil {
				out[path] += time.Duration(n) * tick
			}
		}
	}
	return out
}

// backends are processes of PostgreSQL and what they have used of the processors.
type backends map[string]time.Duration

// since is what they used after a look at them. Those that have ended since are left out.
func (b backends) since(before backends) (sum time.Duration) {
	for path, used := range b {
		sum += used - before[path]
	}
	return sum
}
