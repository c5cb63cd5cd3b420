package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Stmt is one statement of a pipelined trip.
type Stmt struct {
	SQL  string
	Args []any
	// Row is called for every row of the result; nil drops them.
	Row func(scan func(dest ...any) error) error
}

// Pipe is one connection to PostgreSQL of its own on which several statements make one trip to the server. It reconnects
// after a failure. It is not safe for concurrent use.
type Pipe struct {
	cfg   *pgx.ConnConfig
	conn  *pgx.Conn
	st    *Store
	trace func(statement string) // of the transaction that is open
}

// NewPipe returns a pipe that connects at its first use. It exists on PostgreSQL only.
//
// Its planner is held to index scans and nested loops: the ledger looks rows up by arrays of keys, and on a table that has grown since it
// was last analyzed the planner would prefer to read it whole. With no choice left to make, planning a statement once is enough.
func (s *Store) NewPipe() *Pipe {
	cfg := s.Pool().Config().ConnConfig.Copy()
	for _, name := range []string{"enable_seqscan", "enable_hashjoin", "enable_mergejoin", "enable_material", "jit"} {
		cfg.RuntimeParams[name] = "off"
	}
	cfg.RuntimeParams["plan_cache_mode"] = "force_generic_plan"
	// A process that vanishes between its two trips must not keep its accounts locked until TCP notices.
	cfg.RuntimeParams["idle_in_transaction_session_timeout"] = "10s"
	return &Pipe{cfg: cfg, st: s}
}

// Connect connects if there is no connection: for a caller who must know that nothing was sent.
func (p *Pipe) Connect(ctx context.Context) error {
	if p.conn != nil && !p.conn.IsClosed() {
		return nil
	}
	conn, err := pgx.ConnectConfig(ctx, p.cfg)
	if err != nil {
		return MapError(err)
	}
	p.conn = conn
	return nil
}

// Run sends the statements in one trip and reads their results in order. The first error ends it, and the connection is
// left with its transaction aborted, or closed; Reset makes it usable again.
func (p *Pipe) Run(ctx context.Context, stmts ...Stmt) error {
	if err := p.Connect(ctx); err != nil {
		return err
	}
	p.follow(stmts)
	var b pgx.Batch
	for _, s := range stmts {
		b.Queue(s.SQL, s.Args...)
	}
	return runBatch(p.conn.SendBatch(ctx, &b), stmts)
}

// follow traces statements.
func (p *Pipe) follow(stmts []Stmt) {
	if p.st.tracer.Load() == nil {
		p.trace = nil
		return
	}
	for _, s := range stmts {
		switch {
		case s.SQL == "begin":
			p.trace = p.st.trace()
			fallthrough
		case p.trace != nil && s.SQL != "commit":
			p.trace(s.SQL)
		case p.trace != nil:
			p.trace("end")
			p.trace = nil
		}
	}
}

func runBatch(res pgx.BatchResults, stmts []Stmt) error {
	for i, s := range stmts {
		if err := readResult(res, s); err != nil {
			_ = res.Close() // it repeats the first error
			return fmt.Errorf("statement %d of a pipeline: %w", i+1, MapError(err))
		}
	}
	return MapError(res.Close())
}

func readResult(res pgx.BatchResults, s Stmt) error {
	if s.Row == nil {
		_, err := res.Exec()
		return err
	}
	rows, err := res.Query()
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := s.Row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Reset rolls back whatever is open, or drops the connection when that fails.
func (p *Pipe) Reset() {
	if p.conn == nil || p.conn.IsClosed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if _, err := p.conn.Exec(ctx, "rollback"); err != nil {
		_ = p.conn.Close(ctx)
	}
}

// Close ends the connection.
func (p *Pipe) Close() {
	if p.conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = p.conn.Close(ctx)
	}
}
