package gate

import "slices"

// Changes returns every change, oldest release first.
func Changes() []Change { return slices.Clone(changes) }
