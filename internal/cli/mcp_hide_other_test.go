//go:build !linux

package cli_test

func keyholder() int { return 1 }

func spy() int { return 1 }
