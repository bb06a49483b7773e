# include gate.mk: "make gate" runs "make test" in a box, and fails when it does not pass.
WALLBOX ?= wallbox
GATE_OUT ?= ../gate-result
GATE_FLAGS ?=

.PHONY: gate reproduce
gate: ## run the tests in a box
	@mkdir -p $(GATE_OUT)
	$(WALLBOX) gate $(GATE_FLAGS) --json $(GATE_OUT)/result.json --record $(GATE_OUT)/gate.record --log $(GATE_OUT)/gate.log -- $(MAKE) test

reproduce: ## run the last gate again, and tell what is different
	$(WALLBOX) reproduce $(GATE_OUT)/gate.record
