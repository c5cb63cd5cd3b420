package schema

import (
	"regexp"
	"regexp/syntax"
)

const (
	// instructionsPerStep is the number of program instructions that are built, or tried on one character, in one step.
	instructionsPerStep = 16
	// stepsPerByte is the cost of parsing one byte: three bytes can name a class of hundreds of ranges.
	stepsPerByte = 8
	// maxClassSize bounds the cost of one character class; a match searches a large one in logarithmic time.
	maxClassSize = 8
)

// matches reports whether text matches a regular expression. Each character costs the instructions of the program.
func (c *checker) matches(arg any, text string) bool {
	source, ok := arg.(string)
	if !ok {
		return c.malformed("pattern")
	}
	p := c.compiled(source)
	return c.spend(1+p.size*(len(text)+1)/instructionsPerStep) && p.re.MatchString(text)
}

// compiled compiles a regular expression, or returns it from an earlier call. It spends the steps first, with all repetitions.
func (c *checker) compiled(source string) pattern {
	if p, ok := c.patterns[source]; ok || !c.spend(stepsPerByte*len(source)) {
		return p
	}
	tree, err := syntax.Parse(source, syntax.Perl)
	if err != nil {
		c.fail("the schema has a pattern that is not supported")
		return pattern{}
	}
	p := pattern{size: sizeOf(tree)}
	if !c.spend(p.size) {
		return p
	}
	if p.re, err = regexp.Compile(source); err != nil {
		c.fail("the schema has a pattern that is not supported")
		return pattern{}
	}
	if c.patterns == nil {
		c.patterns = map[string]pattern{}
	}
	c.patterns[source] = p
	return p
}

// sizeOf returns an estimate of the instructions of a regular expression, with every repetition unrolled. It does not overflow,
// because the parser limits nested repetitions to 1,000.
func sizeOf(re *syntax.Regexp) int {
	n := 1
	switch re.Op {
	case syntax.OpLiteral:
		n += len(re.Rune)
	case syntax.OpCharClass:
		n += min(len(re.Rune)/2, maxClassSize)
	}
	for _, sub := range re.Sub {
		n += sizeOf(sub)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min, re.Max) + 1
	}
	return n
}
