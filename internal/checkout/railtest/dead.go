package railtest

import (
	"context"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/rail"
)

func (r *Rail) Dead(_ context.Context, s rail.Sale) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now.Unreachable != "" {
		return false, toll.NewError(r.now.Unreachable)
	}
	_, used := r.spent[nonceOf(s)]
	return !used && s.Authorization.ValidBefore <= uint64(r.at().Unix()), nil
}
