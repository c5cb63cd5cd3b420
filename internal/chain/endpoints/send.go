package endpoints

import (
	"context"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
)

// Send sends the bytes of a signed transaction to all endpoints in parallel. It returns nil as soon as one endpoint accepts it; the other
// calls continue. Otherwise it returns the most specific JSON-RPC error, [ErrNone] when no endpoint answered, or the error of ctx. After an
// error the transaction can still be mined, unless every endpoint has rejected it every time.
func (p *Pool) Send(ctx context.Context, raw []byte) error {
	type answer struct {
		err   error
		fault string
		from  string
	}
	// The attempts outlive the caller, so that an endpoint that is late still gets the transaction.
	life, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Duration(p.cfg.Tries)*p.cfg.Timeout)
	stop := context.AfterFunc(p.life, cancel)
	answers := make(chan answer, len(p.endpoints))
	p.work.Go(func() {
		defer stop()
		defer cancel()
		p.each(func(e *endpoint) {
			fault, err := e.send(life, raw)
			answers <- answer{err, fault, e.conn.Name}
		})
	})
	var best error
	var whys []string
	for range p.endpoints {
		select {
		case a := <-answers:
			switch {
			case a.fault != "":
				whys = append(whys, a.from+": "+a.fault)
			case a.err == nil:
				return nil
			case best == nil || telling(a.err) < telling(best):
				best = a.err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if best != nil {
		return best
	}
	return none(whys)
}

// send hands a transaction to one endpoint. To repeat it after a fault is safe: the bytes are the same.
func (e *endpoint) send(ctx context.Context, raw []byte) (string, error) {
	return e.read(ctx, func(ctx context.Context, c *Conn) error {
		var hash common.Hash
		if err := c.RPC.CallContext(ctx, &hash, "eth_sendRawTransaction", "0x"+common.Bytes2Hex(raw)); err != nil {
			return err
		}
		if hash != crypto.Keccak256Hash(raw) {
			return &formFault{"the endpoint returned a different hash for the transaction"}
		}
		return nil
	})
}

// Said is what an endpoint says about a transaction.
type Said int

// What an endpoint says.
const (
	Other       Said = iota // nothing of what follows
	Took                    // it has the transaction
	NonceUsed               // a transaction with this nonce is on the chain
	Underpriced             // its fees are below those of the block or of the transaction that it replaces
	Unpaid                  // its account cannot pay the fees
	TooLarge                // its bytes or its gas are beyond a limit
)

// answers are the texts of endpoints, what tells most first.
var answers = []struct {
	text string
	is   Said
}{
	{"already known", Took}, {"already imported", Took}, {"known transaction", Took}, {"nonce too low", NonceUsed},
	{"underpriced", Underpriced}, {"less than block base fee", Underpriced}, {"insufficient funds", Unpaid},
	{"oversized data", TooLarge}, {"gas limit too high", TooLarge}, {"gas_limit_cap", TooLarge}, {"exceeds block gas limit", TooLarge},
}

// telling ranks what endpoints say about a transaction: the lower, the more it tells.
func telling(err error) int {
	text := strings.ToLower(err.Error())
	for i, a := range answers {
		if strings.Contains(text, a.text) {
			return i
		}
	}
	return len(answers)
}

// Understand returns what the error of [Pool.Send] says about the transaction; nil is [Took].
func Understand(err error) Said {
	if err == nil {
		return Took
	}
	if i := telling(err); i < len(answers) {
		return answers[i].is
	}
	return Other
}
