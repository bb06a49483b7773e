// Package source fetches the values of variables whose profile names where they
// are ({ file = "..." }, { env = "..." }, { command = [...] }, { keyring = "..." },
// { secret-service = {...} }) instead of holding them. Stage 1 does that outside
// of the box, right before the start.
package source
