/* The attribute keys MPICHX_TOPOLOGY_DEPTHS and MPICHX_TOPOLOGY_COLORS. */
#ifndef ISTHMUS_ATTRIBUTES_H
#define ISTHMUS_ATTRIBUTES_H

/* Makes the keys, after MPI_Init; frees them, before MPI_Finalize. Local. */
void attributes_start(void);
void attributes_end(void);

#endif
