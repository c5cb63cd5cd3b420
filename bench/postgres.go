package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
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
	stop     func() error
}

// openCluster makes a database on the cluster of TOLL_TEST_POSTGRES, or on one of its own.
func openCluster(ctx context.Context) (*cluster, error) {
	c := &cluster{admin: os.Getenv("TOLL_TEST_POSTGRES"), stop: func() error { return nil }}
	if c.admin == "" {
		if err := c.start(ctx); err != nil {
			return nil, err
		}
	}
	u, err := url.Parse(c.admin)
	if err != nil {
		return nil, errors.Join(errors.New("TOLL_TEST_POSTGRES is not an address"), c.stop())
	}
	c.name = fmt.Sprintf("toll_bench_%d", os.Getpid())
	if err := c.exec(ctx, "CREATE DATABASE "+c.name); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	u.Path = "/" + c.name
	c.database = u.String()
	return c, nil
}

func (c *cluster) start(ctx context.Context) error {
	script, err := find(filepath.Join("scripts", "postgres.sh"))
	if err != nil {
		return err
	}
	parent, err := os.MkdirTemp("", "toll-bench-pg-")
	if err != nil {
		return err
	}
	if err := os.Chmod(parent, 0o755); err != nil { // the cluster runs as another user when we are root
		return err
	}
	dir := filepath.Join(parent, "cluster")
	c.stop = func() error {
		return errors.Join(exec.Command(script, "stop", dir).Run(), os.RemoveAll(parent))
	}
	cmd := exec.CommandContext(ctx, script, "start", dir)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Run(); err != nil {
		return errors.Join(fmt.Errorf("scripts/postgres.sh: %w", err), os.RemoveAll(parent))
	}
	c.admin = strings.TrimSpace(out.String())
	return nil
}

// find looks for a file of the repository in this directory and those above it.
func find(name string) (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		path := filepath.Join(dir, name)
		if _, e := os.Stat(path); e == nil {
			return path, nil
		}
		if dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	return "", errors.Join(fmt.Errorf("%s is not here; run this inside of the repository or set TOLL_TEST_POSTGRES", name), err)
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
	err := c.exec(ctx, "DROP DATABASE IF EXISTS "+c.name+" WITH (FORCE)")
	return errors.Join(err, c.stop())
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
