package egress

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	queueLength = 1024 // events that wait for Observe
	mostDenials = 100  // in a Summary
)

// observeTime is how long one event may take to be observed once there are no more.
const observeTime = 2 * time.Second

// A journal takes events from many goroutines, sums them up, and hands them to one
// goroutine that calls observe. It never blocks: what does not fit is counted.
type journal struct {
	observe func(Event)
	queue   chan Event
	done    chan struct{} // closed when observe is not called any more

	observed  atomic.Int64 // calls that have returned
	abandoned atomic.Bool  // observe is not to be called any more

	mu     sync.Mutex
	sum    Summary
	told   map[denial]int // where it stands in sum.Denials, or sum.Failures
	closed bool
}

type denial struct {
	kind, name, addr, reason string
	port                     int
}

func newJournal(observe func(Event)) *journal {
	j := &journal{observe: observe, done: make(chan struct{}), told: make(map[denial]int)}
	if observe == nil {
		close(j.done)
		return j
	}
	j.queue = make(chan Event, queueLength)
	go func() {
		defer close(j.done)
		for e := range j.queue {
			if j.abandoned.Load() {
				return
			}
			j.observe(e)
			j.observed.Add(1)
		}
	}()
	return j
}

// add sums up an event and queues it. Its time is now.
func (j *journal) add(e Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return
	}
	e.Time = time.Now()
	switch e.Kind {
	case KindOpen:
		j.sum.Opened++
	case KindClose:
		j.sum.BytesIn += e.In
		j.sum.BytesOut += e.Out
	case KindFail:
		j.sum.Failed++
		j.note(&j.sum.Failures, e)
	case KindDeny:
		j.sum.Denied++
		j.note(&j.sum.Denials, e)
	}
	if j.queue == nil {
		return
	}
	select {
	case j.queue <- e: // in the lock, so that events stay in order and none follows the close
	default:
		j.sum.Dropped++
	}
}

// note counts an event among those of its kind; mu is held.
func (j *journal) note(list *[]Denial, e Event) {
	d := denial{kind: e.Kind, name: e.Name, reason: e.Reason, port: e.Port}
	if e.Name == "" {
		d.addr = e.Addr
	}
	if i, ok := j.told[d]; ok {
		(*list)[i].Count++
	} else if len(*list) < mostDenials {
		j.told[d] = len(*list)
		*list = append(*list, Denial{Event: e, Count: 1})
	}
}

// close waits until every queued event has been observed, and gives the summary. An
// observer that takes too long for one is left alone with it: the rest is counted.
func (j *journal) close() Summary {
	j.mu.Lock()
	if !j.closed && j.queue != nil {
		close(j.queue)
	}
	j.closed = true
	j.mu.Unlock()
	for before := j.observed.Load(); ; {
		select {
		case <-j.done:
			return j.sum
		case <-time.After(observeTime):
		}
		now := j.observed.Load()
		if now == before {
			break
		}
		before = now
	}
	j.abandoned.Store(true)
	j.sum.Dropped++ // the one that is being observed
	for range j.queue {
		j.sum.Dropped++
	}
	return j.sum
}
