package double

import (
	"net/http"
)

// keepOutcomes is how long the outcome under an idempotency key is replayed: Stripe keeps it for at least this time.
const keepOutcomes = 24 * 60 * 60

// outcome is the first answer that a request with an idempotency key got.
type outcome struct {
	base
	Path    string
	Params  string // a hash
	Request string // req_…
	Answer  answer
}

func outcomeID(key string) string { return "outcome " + key }

// keep stores the first answer under a key, in place of one that is too old.
func (c *call) keep(key string, p params, a answer) {
	id := outcomeID(key)
	if _, ok := find[*outcome](c.st, id); ok {
		c.st.forget(func(r row) bool { return r.key() == id })
	}
	c.st.add(&outcome{base{id, "outcome", c.now}, c.r.URL.Path, p.hash(), c.id, a})
}

// begin reserves an idempotency key for a request. It returns the answer, and true, when the key
// was used before or its first request still runs.
func (d *Double) begin(r *http.Request, p params, key string) (answer, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.busy[key] {
		f := invalidRequest("", "idempotency_key_in_use", "There is currently another in-progress request using this Idempotent Key: %s", key)
		f.status, f.Type = http.StatusConflict, "idempotency_error"
		return newAnswer(nil, f), true
	}
	o, ok := find[*outcome](d.st, outcomeID(key))
	if !ok || d.now().Unix()-o.Created >= keepOutcomes {
		d.busy[key] = true
		return answer{}, false
	}
	if o.Path != r.URL.Path || o.Params != p.hash() {
		f := invalidRequest("", "", "Keys for idempotent requests can only be used with the same "+
			"endpoint and parameters they were first used with. Use a key other than '%s'.", key)
		f.Type = "idempotency_error"
		return newAnswer(nil, f), true
	}
	a := o.Answer
	a.replayed = o.Request
	return a, true
}

// end frees the key of a request that ran.
func (d *Double) end(key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.busy, key)
}
