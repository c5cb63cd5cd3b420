package gateway

import "net/http"

// servePaid serves the paid endpoint. It is called for its path alone, when it is enabled.
func (c *Core) servePaid(w http.ResponseWriter, r *http.Request) {
	http.Error(w, "not built yet", http.StatusServiceUnavailable) // G3
}
