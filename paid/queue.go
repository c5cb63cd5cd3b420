package paid

import "github.com/tollhq/toll/internal/seller"

// Unsettled is a stream that was delivered but not settled: its request (AgentRequestID, PlanID, Payer), the Credits to burn,
// the delivered Bytes, the Attempts, Since when, and the Reason of the last refusal. Final means that it will not be settled:
// the service refused, or the queue gave up after 24 hours or was full.
type Unsettled = seller.Unsettled

// Queue settles streams that were delivered while the service could not be reached, each with the id of its request, so
// that none is burned twice. It lives in memory. The zero value is not usable; see [NewQueue].
//
//	Len() int                         // streams that wait
//	Drain(ctx context.Context) error  // settle them now; call it before the program exits
type Queue = seller.Queue

// NewQueue returns an empty queue. One queue may serve many routes.
func NewQueue() *Queue { return seller.NewQueue() }
