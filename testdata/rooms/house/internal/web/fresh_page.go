package web

// Remedy has names made of private words.
type Remedy struct{ Lacking, lacking int }

func (Remedy) tellAll() {}
func turnAround()       {}
func interesting()      {}
