package server

import (
	"context"
	"time"

	"github.com/tollhq/toll/internal/chain/endpoints"
)

// HeadTime returns the time of the newest block of the chain of a service.
func (s *Server) HeadTime(ctx context.Context) (at time.Time, err error) {
	r, err := s.chain.need(ctx)
	if err != nil {
		return time.Time{}, err
	}
	err = r.pool.Read(ctx, func(ctx context.Context, c *endpoints.Conn) error {
		head, err := c.HeaderByNumber(ctx, nil)
		if err == nil {
			at = time.Unix(int64(head.Time), 0)
		}
		return err
	})
	return at, err
}
