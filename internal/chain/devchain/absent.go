//go:build nodevchain

package devchain

import "context"

// Included reports whether the program contains the chain.
const Included = false

// Chain is never used: [Start] fails.
type Chain struct{ methods }

// Start returns [ErrAbsent].
func Start(context.Context, Config) (*Chain, error) { return nil, ErrAbsent }
