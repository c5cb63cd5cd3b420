package server

import (
	"context"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/alarm"
	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
)

// RunDueJobs runs the jobs that are due now beside the loop of the service.
func (s *Server) RunDueJobs(ctx context.Context) (int, error) { return s.queue.RunDue(ctx) }

// SignUpLink returns a link with which one person signs up where registration is by invitation.
func (s *Server) SignUpLink(ctx context.Context) (string, error) { return s.RecoverLink(ctx, "") }

// RecoverLink returns a link with which the person of a login name chooses a new password.
func (s *Server) RecoverLink(ctx context.Context, login string) (string, error) {
	path, _, err := s.people.Links.Local(ctx, login)
	return s.PublicURL() + path, err
}

// BackUp is a turn of the loop that makes backups.
func (s *Server) BackUp(ctx context.Context) error {
	_, err := s.backUp(ctx)
	return err
}

// JobsLeft returns how many jobs there are.
func (s *Server) JobsLeft(t testing.TB) (n int64) {
	t.Helper()
	must.Do(t, s.base.store.QueryRow(t.Context(), "SELECT COUNT(*) FROM jobs").Scan(&n))
	return n
}

// WithBrand and KeepBrand are the two halves of a first start, before and after everything else.
func WithBrand(ctx context.Context, c Config, st *store.Store) (Config, error) {
	return c.withBrand(ctx, st, "")
}

func KeepBrand(
	ctx context.Context,
	c Config,
	st *store.Store,
) error {
	return c.keepBrand(ctx, st, "")
}

// Disable keeps a person out, or lets them in again.
func Disable(s *Server, ctx context.Context, who string, disabled bool) (toll.Person, error) {
	return s.people.Disable(ctx, who, disabled)
}

// Alarm raises one, as a fault would.
func Alarm(s *Server, id alarm.ID) { alarm.Log(context.Background(), s.cfg.Log, id, "for a test") }

// PeoplePages are the routes for people.
func PeoplePages(s *Server) ([]api.Page, error) {
	w, err := s.web()
	if err != nil {
		return nil, err
	}
	return peoplePages(w), nil
}

// RefusePasswords turns passwords off or on, as another start would.
func RefusePasswords(s *Server, off bool) { s.people.Credentials.NoPasswords = off }

// CallsLoopback reports whether test calls of pages reach this machine.
var CallsLoopback = callsLoopback
