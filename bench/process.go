package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// process is a process under test, seen from the one that loads it.
type process struct {
	name    string
	addr    string
	cmd     *exec.Cmd
	in      io.WriteCloser
	orders  *json.Encoder
	answers *json.Decoder
}

// spawn runs a program in the role, without one this program again, and waits until it listens. It ends when the pipe to it closes.
func spawn(name string, r role, program ...string) (*process, error) {
	if len(program) == 0 {
		exe, err := os.Executable()
		if err != nil {
			return nil, err
		}
		program = []string{exe}
	}
	p := &process{name: name, cmd: exec.Command(program[0], program[1:]...)}
	p.cmd.Env = append(os.Environ(), childEnv+"=1")
	p.cmd.Stderr = os.Stderr
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	p.orders, p.answers = json.NewEncoder(p.in), json.NewDecoder(out)
	a, err := p.say(r)
	if err != nil {
		return nil, errors.Join(err, p.end())
	}
	p.addr = a.Addr
	return p, nil
}

func (p *process) say(what any) (*answer, error) {
	if err := p.orders.Encode(what); err != nil {
		return nil, fmt.Errorf("%s: %w", p.name, err)
	}
	var a answer
	if err := p.answers.Decode(&a); err != nil {
		return nil, fmt.Errorf("%s: %w", p.name, err)
	}
	if a.Fault != "" {
		return nil, fmt.Errorf("%s: %s", p.name, a.Fault)
	}
	return &a, nil
}

func (p *process) cpu() (time.Duration, error) {
	a, err := p.say(order{})
	if err != nil {
		return 0, err
	}
	return a.CPU, nil
}

// profile writes a CPU profile while f runs.
func (p *process) profile(dir, scenario string, round int, f func()) error {
	name, err := filepath.Abs(filepath.Join(dir, fmt.Sprintf("%s.%s.%d.pprof", scenario, p.name, round)))
	if err != nil {
		return err
	}
	if _, err := p.say(order{Profile: name}); err != nil {
		return err
	}
	f()
	_, err = p.say(order{Stop: true})
	return err
}

// quit lets the process finish, and returns what it says about its database if it is audited.
func (p *process) quit(audited bool) (*audit, error) {
	a, err := p.say(order{Quit: true, Audit: audited})
	if err = errors.Join(err, p.end()); err != nil {
		return nil, err
	}
	return a.Audit, nil
}

// end is for a process that has nothing more to say.
func (p *process) end() error {
	_ = p.in.Close() // it may have gone already
	late := time.AfterFunc(time.Minute, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	if err := p.cmd.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return nil
}
