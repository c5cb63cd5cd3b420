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
	database string // the address of ours
}

// openCluster makes a database on the cluster of TOLL_TEST_POSTGRES.
func openCluster(ctx context.Context) (*cluster, error) {
	c := &cluster{admin: os.Getenv("TOLL_TEST_POSTGRES"), name: fmt.Sprintf("toll_bench_%d", os.Getpid())}
	if c.admin == "" {
		return nil, errors.New("TOLL_TEST_POSTGRES is not set; run this with make bench")
	}
	u, err := url.Parse(c.admin)
	if err != nil {
		return nil, errors.New("TOLL_TEST_POSTGRES is not an address")
	}
	u.Path = "/" + c.name
	c.database = u.String()
	if err := c.exec(ctx, "CREATE DATABASE "+c.name); err != nil {
		return nil, err
	}
	return c, nil
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
	return c.exec(ctx, "DROP DATABASE IF EXISTS "+c.name+" WITH (FORCE)")
}

// cpuTime is what the backends that serve our database have used of the processors, 0 where that cannot be seen. The
// processes that write the log ahead and checkpoints are not in it.
func (c *cluster) cpuTime() time.Duration {
	if c == nil {
		return 0
	}
	const tick = 10 * time.Millisecond // what /proc counts in, on every Linux
	titles, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	var sum time.Duration
	for _, path := range titles {
		title, err := os.ReadFile(path)
		if err != nil || !bytes.HasPrefix(title, []byte("postgres:")) || !bytes.Contains(title, []byte(" "+c.name+" ")) {
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
				sum += time.Duration(n) * tick
			}
		}
	}
	return sum
}
