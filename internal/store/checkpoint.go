package store

import (
	"context"
	"os"
	"time"
)

// Sizes of the write-ahead log of the embedded database, in pages of 4 KiB.
const (
	// checkpointFrom is where [Store.Checkpoint] begins. A page that is written often is copied once a checkpoint.
	checkpointFrom = 4000
	// checkpointRest is how much may be left to copy while writers wait.
	checkpointRest = 256
	// commitCheckpointFrom is where COMMIT itself checkpoints: nobody calls [Store.Checkpoint], or it is too slow.
	commitCheckpointFrom = 16000
	// checkpointCut is the size from which [Store.CutLog] cuts the log.
	checkpointCut = 256

	// checkpointPasses bounds how often one turn copies beside a writer that goes on writing.
	checkpointPasses = 4
	// checkpointBusyTimeout bounds how long writers wait for readers that are in the log.
	checkpointBusyTimeout = 20 * time.Millisecond
	pageSize              = 4096
)

// Log is the state of the write-ahead log of the embedded database.
type Log struct {
	Pages       int64 // in the log
	Waiting     int64 // of them, not yet copied into the database
	Checkpoints int64 // how often all were copied since the start
}

// Log returns the state of the write-ahead log at the last [Store.Checkpoint], zero with PostgreSQL.
func (s *Store) Log() Log {
	if s.lite == nil {
		return Log{}
	}
	s.lite.logMu.Lock()
	defer s.lite.logMu.Unlock()
	return s.lite.log
}

// Checkpoint copies a write-ahead log of 16 MiB or more into the embedded database, beside the writer, which waits for
// the last pages only. Then the log starts anew. A reader that needs the log holds this back; it is no error, and the
// next call continues. [ErrFlush] ends all writing, as after a COMMIT. It does nothing on PostgreSQL.
//
// It is called a few times a second by one goroutine of the service.
func (s *Store) Checkpoint(ctx context.Context) error {
	if s.lite == nil || s.lite.writer == nil {
		return nil
	}
	l := s.lite
	log, err := l.checkpoint(ctx, "NOOP")
	if err != nil || log.Pages < checkpointFrom || log.Waiting == 0 {
		return err
	}
	for pass := 0; pass < checkpointPasses && log.Waiting > checkpointRest; pass++ {
		if log, err = l.checkpoint(ctx, "PASSIVE"); err != nil {
			return err
		}
	}
	if log.Waiting > checkpointRest {
		return nil
	}
	return l.checkpointBetween(ctx, "RESTART")
}

// CutLog copies the whole write-ahead log into the embedded database and cuts the file of a log of 1 MiB or more, while
// writers wait. It is for times in which little is written.
func (s *Store) CutLog(ctx context.Context) error {
	if s.lite == nil || s.lite.writer == nil {
		return nil
	}
	info, err := os.Stat(s.lite.path + "-wal")
	if err != nil || info.Size() < checkpointCut*pageSize {
		return nil // the log has not been made yet, or is short
	}
	return s.lite.checkpointBetween(ctx, "TRUNCATE")
}

// checkpointBetween runs a checkpoint between two transactions of this process.
func (l *lite) checkpointBetween(ctx context.Context, mode string) error {
	select {
	case l.writer.busy <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-l.writer.busy }()
	_, err := l.checkpoint(ctx, mode)
	return err
}

// checkpoint runs a checkpoint of a mode of SQLite and notes what the log is like then. Readers and writers that are
// in its way are no error.
func (l *lite) checkpoint(ctx context.Context, mode string) (Log, error) {
	select {
	case <-l.writer.failed: // another flush could succeed without what the one before has dropped
		return Log{}, ErrFlush
	default:
	}
	var busy, pages, copied int64
	// A flush that is interrupted would not be known to have failed.
	row := l.checkpoints.QueryRowContext(context.WithoutCancel(ctx), "PRAGMA wal_checkpoint("+mode+")")
	if err := row.Scan(&busy, &pages, &copied); err != nil {
		if isFlushFailure(err) {
			return Log{}, l.writer.fail(err)
		}
		return Log{}, MapError(err)
	}
	l.logMu.Lock()
	defer l.logMu.Unlock()
	l.log.Pages, l.log.Waiting = pages, pages-copied
	if mode != "NOOP" && pages == copied {
		l.log.Checkpoints++
	}
	return l.log, nil
}
