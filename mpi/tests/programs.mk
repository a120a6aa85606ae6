# The programs of the tests, for every MPI: OUT/MPI/NAME. See check.

BIN_OPENMPI5 ?= $(abspath ../target/openmpi5/bin)
BIN_MPICH ?= $(abspath ../target/mpich/bin)
OUT ?= $(abspath ../target/mpi/check)
# The weights that stand for none are small numbers, which GCC takes for short arrays.
CFLAGS := -std=c11 -O1 -g -Wall -Wextra -Werror -Wno-stringop-overread -Wno-stringop-overflow
UNIT_CFLAGS := -std=c11 -D_GNU_SOURCE -O1 -g -Wall -Wextra -Werror -fsanitize=address,undefined -fno-sanitize-recover
FFLAGS := -O1 -g -Wall

MPIS := openmpi openmpi5 mpich4 mpich mpiabi
CC_openmpi := mpicc.openmpi
CC_openmpi5 := $(BIN_OPENMPI5)/mpicc -DGUIDED_BY_ENUM
CC_mpich4 := mpicc.mpich
CC_mpich := $(BIN_MPICH)/mpicc
CC_mpiabi := $(BIN_MPICH)/mpicc_abi -DGUIDED_BY_ENUM
FC_openmpi := mpif90.openmpi
FC_mpich4 := mpif90.mpich

PROGRAMS := calls counts places graphs spawn threads absolute moments comms ends stops contexts chance pieces
UNITS := topology layout reorder choice limits tags processors
BACK_topology := back/topology.c back/reading.c back/names.c back/hash.c back/paths.c back/numbering.c
BACK_tags := back/tags.c
BACK_processors := back/processors.c back/numbering.c
BACK_layout := back/layout.c back/numbering.c
BACK_choice := back/choice.c back/cost.c back/cost_own.c back/cost_native.c back/openmpi.c back/shape.c back/paths.c back/numbering.c back/least.c back/window.c
BACK_reorder := back/reorder.c back/edges.c back/partition.c back/numbering.c

# Stubs of an MPI: the soname, and what it says of itself.
STUBS := other bare renamed older hollow
SONAME_other := libmpiseq.so
SONAME_bare := libmpi.so.40
SONAME_renamed := libmpi.so.40
VERSION_renamed := IBM Spectrum MPI v10.4
SONAME_older := libmpi.so.12
VERSION_older := Open MPI v1.10.7
SONAME_hollow := libmpi.so.12
VERSION_hollow := MPICH Version: 4.0

.PHONY: all
all: $(STUBS:%=$(OUT)/stub/%/serial)
all: $(foreach mpi,$(MPIS),$(PROGRAMS:%=$(OUT)/$(mpi)/%) $(OUT)/$(mpi)/tool.so) $(UNITS:%=$(OUT)/unit/%) \
	$(foreach mpi,openmpi mpich4,$(patsubst %,$(OUT)/$(mpi)/%,mpif usempi usempif08))

define unit
$(OUT)/unit/$(1): tests/unit/$(1).c $(BACK_$(1)) $(wildcard back/*.h back/collectives/*.h tests/unit/*.h)
	@mkdir -p $$(@D)
	gcc $(UNIT_CFLAGS) -o $$@ $$< $(BACK_$(1))
endef
$(foreach name,$(UNITS),$(eval $(call unit,$(name))))

define programs
$(OUT)/$(1)/tool.so: tests/programs/tool.c
	@mkdir -p $$(@D)
	$(CC_$(1)) $(CFLAGS) -shared -fPIC -o $$@ $$<
$(OUT)/$(1)/%: tests/programs/%.c tests/programs/check.h include/isthmus_mpi.h
	@mkdir -p $$(@D)
	$(CC_$(1)) $(CFLAGS) -o $$@ $$< -lpthread
endef
$(foreach mpi,$(MPIS),$(eval $(call programs,$(mpi))))

# The program, which is linked with the stub beside it.
define stub
$(OUT)/stub/$(1)/serial: tests/stub/serial.c tests/stub/stub.c tests/stub/stub.h
	@mkdir -p $$(@D)
	gcc $(CFLAGS) -shared -fPIC -Wl,-soname,$(SONAME_$(1)) $(if $(VERSION_$(1)),'-DVERSION="$(VERSION_$(1))"') \
		-o $$(@D)/$(SONAME_$(1)) tests/stub/stub.c
	gcc $(CFLAGS) -o $$@ $$< $$(@D)/$(SONAME_$(1)) -Wl,-rpath,$$(@D)
endef
$(foreach name,$(STUBS),$(eval $(call stub,$(name))))

define fortran
$(OUT)/$(1)/mpif: tests/languages/mpif.f
	@mkdir -p $$(@D)
	$(FC_$(1)) $(FFLAGS) -o $$@ $$<
$(OUT)/$(1)/usempi: tests/languages/usempi.f90
	@mkdir -p $$(@D)
	$(FC_$(1)) $(FFLAGS) -o $$@ $$<
$(OUT)/$(1)/usempif08: tests/languages/usempif08.f90 fortran/isthmus_mpi.f90
	@mkdir -p $$(@D)
	$(FC_$(1)) $(FFLAGS) -J $$(@D) -o $$@ fortran/isthmus_mpi.f90 $$<
endef
$(foreach mpi,openmpi mpich4,$(eval $(call fortran,$(mpi))))
