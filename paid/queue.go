package paid

import "github.com/tollhq/toll/internal/seller"

// Unsettled is a stream that was delivered but not settled: its request (AgentRequestID, PlanID, Payer), the Credits to burn, the
// number of Bytes delivered, the Attempts, the time Since which it has been unsettled, and the Reason of the last attempt. Final
// means that it will never be settled: the service refused, or the queue was full or gave up after 24 hours.
type Unsettled = seller.Unsettled

// Queue settles streams that were delivered while the service was unreachable. It uses the id of each request, so that credits
// are burned only once. It is kept in memory. The zero value is not usable; see [NewQueue].
//
//	Len() int                         // number of queued streams
//	Drain(ctx context.Context) error  // settles them now; call it before the program exits
type Queue = seller.Queue

// NewQueue returns an empty queue. One queue may serve many routes.
func NewQueue() *Queue { return seller.NewQueue() }
